"""Lets TFX 1.16's Transform analyze what another analysis has found.

TFT then copies a part of Beam's graph, and passes Beam's constructor the arguments that
it took at the time. Beam has required two more since, with which later versions of TFT
call it
(https://github.com/tensorflow/transform/blob/v1.16.0/tensorflow_transform/beam/deep_copy.py).
"""

from apache_beam import pipeline


def allow() -> None:
    """Makes these two arguments of `AppliedPTransform` optional, in this process.

    ```python
    deep_copy.allow()  # for tft.scale_to_z_score(tf.minimum(x, tft.mean(x)))
    ```
    """
    pipeline.AppliedPTransform.__init__.__defaults__ = (None, None)  # no environment of its own, no annotations
