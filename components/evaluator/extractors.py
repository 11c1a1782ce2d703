"""Changes what TFMA extracts from examples and models.

Examples are sliced by their texts, not by ids of a vocabulary: TFMA slices by
transformed features first, and of a text that the transform has mapped to an id under
the same name, a reader could not tell which text a slice is.

If the label is given by output (`label_keys`), the only output of a model gets its name
back: TFMA drops it, and would then find no predictions for the label.
"""

from collections.abc import Collection, Mapping
from typing import Any

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.extractors import slice_key_extractor, unbatch_extractor
from tensorflow_model_analysis.proto import config_pb2


def custom_extractors(eval_shared_model: Any, eval_config: config_pb2.EvalConfig, tensor_adapter_config: Any) -> list[Any]:
    """Returns TFMA's extractors, with those that this module adds.

    The Evaluator's executor calls this function of its module, with the arguments of
    `tfma.default_extractors`.
    """
    extractors = tfma.default_extractors(
        eval_shared_model=eval_shared_model, eval_config=eval_config, tensor_adapter_config=tensor_adapter_config
    )
    batched, single = divide(extractors, eval_config)
    names = find_sliced_texts(eval_config)
    stages = [extractor.stage_name for extractor in single]
    place = stages.index(slice_key_extractor.SLICE_KEY_EXTRACTOR_STAGE_NAME)
    texts = tfma.extractors.Extractor("TextsOfSlices", beam.Map(use_texts, names=names))
    return [*batched, *single[:place], texts, *single[place:]]


def divide(extractors: list[Any], config: config_pb2.EvalConfig) -> tuple[list[Any], list[Any]]:
    """Returns the extractors of batches, with ours, and those of single examples."""
    stages = [extractor.stage_name for extractor in extractors]
    place = stages.index(unbatch_extractor.UNBATCH_EXTRACTOR_STAGE_NAME)
    names = tfma.extractors.Extractor("NamesOfOutputs", beam.Map(name_outputs, config=config))
    return [*extractors[:place], names], extractors[place:]


def name_outputs(extracts: dict[str, Any], config: config_pb2.EvalConfig) -> dict[str, Any]:
    """Gives a model's only output the name that `label_keys` has for it."""
    outputs = list(config.model_specs[0].label_keys)
    if len(outputs) != 1:
        return extracts

    def name(predictions: Any) -> Any:
        return predictions if isinstance(predictions, Mapping) else {outputs[0]: predictions}

    predictions = extracts[constants.PREDICTIONS_KEY]
    has_baseline = len(config.model_specs) > 1
    named = {model: name(value) for model, value in predictions.items()} if has_baseline else name(predictions)
    return {**extracts, constants.PREDICTIONS_KEY: named}


def find_sliced_texts(config: config_pb2.EvalConfig) -> set[str]:
    """Returns the features that are sliced by their own texts.

    Features with a given value in a slice stay as they are, since it may be an id.
    """
    given = {name for spec in config.slicing_specs for name in spec.feature_values}
    return {name for spec in config.slicing_specs for name in spec.feature_keys} - given


def use_texts(extracts: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Returns an example's extracts with its own texts among transformed features.

    The example is sliced by the features `names`.
    """
    raw, transformed = extracts[constants.FEATURES_KEY], extracts.get(constants.TRANSFORMED_FEATURES_KEY) or {}
    texts = {name: raw[name] for name in names if name in raw and raw[name].dtype.kind in "OS"}
    by_model = {name: value for name, value in transformed.items() if isinstance(value, dict)}  # with a baseline
    if by_model:
        changed = {name: {**features, **_replacing(features, texts)} for name, features in by_model.items()}
    else:
        changed = {**transformed, **_replacing(transformed, texts)}
    return {**extracts, constants.TRANSFORMED_FEATURES_KEY: changed}


def _replacing(features: dict[str, Any], texts: dict[str, Any]) -> dict[str, Any]:
    """Returns the texts whose transformed feature is one number, such as an id."""
    return {
        name: text
        for name, text in texts.items()
        if name in features and features[name].dtype.kind == "i" and text.size == 1
    }
