"""Names the features that a model predicts, and what weighs its losses."""

import ast
import json
import math
from collections.abc import Mapping

from tfx_distribute.trainer_module.errors import ConfigurationError

# One feature, or name of an output of the model -> the feature for it.
FeatureNames = str | Mapping[str, str]


def names_in(features: FeatureNames | None) -> tuple[str, ...]:
    """Returns the names of features."""
    if features is None or isinstance(features, str):
        return (features,) if features else ()
    return tuple(features.values())


def to_text(features: FeatureNames | None) -> str | None:
    """Returns features as one execution property, which `from_text` reads."""
    return json.dumps(dict(features)) if isinstance(features, Mapping) else features


def from_text(text: str | None) -> FeatureNames | None:
    """Reads an execution property: a name, a JSON object, or nothing."""
    return json.loads(text) if text and text.startswith("{") else text or None


def check(label: FeatureNames | None, example_weight: FeatureNames | None, class_weight: str) -> None:
    """Checks that there is a loss for each weight."""
    if isinstance(label, Mapping) and not label:
        raise ConfigurationError("label: it names no output; write the name of an output and of its label, or no label")
    outputs = set(label) if isinstance(label, Mapping) else set()
    if label is None and (example_weight or class_weight):
        raise ConfigurationError(
            f"{'example_weight' if example_weight else 'class_weight'}: there is no label, so Keras computes no loss to "
            "weigh; leave it out, and read the weight in the model"
        )
    if class_weight and len(outputs) > 1:
        raise ConfigurationError(
            "class_weight: label names several outputs, and Keras weighs the classes of a single label only; leave it out, "
            "and write example_weight"
        )
    if isinstance(example_weight, Mapping) and set(example_weight) != outputs:
        raise ConfigurationError(
            f"example_weight: it is for the outputs {', '.join(sorted(example_weight))}, and label is for "
            f"{', '.join(sorted(outputs)) or 'none'}; write a weight for each of these, or one for all"
        )


def parse_class_weight(text: str) -> dict[int, float]:
    """Returns the weight of each class that a text such as `0: 1, 1: 2.5` lists."""
    try:
        weights = ast.literal_eval(f"{{{text.strip().strip('{}')}}}")
        fits = (type(number) is int and number >= 0 and 0 <= weight < math.inf for number, weight in weights.items())
        if text.count(":") == len(weights) and all(fits):  # no class twice
            return {number: float(weight) for number, weight in weights.items()}
    except (ValueError, SyntaxError, TypeError, AttributeError):
        pass
    raise ConfigurationError(
        f"class_weight: {text!r} is not a list of classes and their weights; write them like 0: 1, 1: 2.5 (classes from 0, "
        "each once, weights of 0 or more)"
    )
