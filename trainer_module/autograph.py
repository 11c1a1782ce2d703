"""Keeps AutoGraph out of Keras 2's own code."""


def exempt_tf_keras() -> None:
    """Tells AutoGraph not to convert `tf_keras`, as it already leaves `keras` alone.

    TensorFlow 2.16 converts the inside of tf_keras at the first batch, which takes about ten seconds and changes nothing;
    from 2.21 on it has this rule itself. Layers and losses of the user are still converted.
    The list of rules is private, so it is used only where it looks as expected.
    """
    try:
        from tensorflow.python.autograph.core import config
    except ImportError:
        return
    rules = getattr(config, "CONVERSION_RULES", None)
    do_not_convert = getattr(config, "DoNotConvert", None)
    if not isinstance(rules, tuple) or do_not_convert is None:
        return
    if not any(getattr(rule, "_prefix", None) == "tf_keras" for rule in rules):
        config.CONVERSION_RULES = (do_not_convert("tf_keras"), *rules)
