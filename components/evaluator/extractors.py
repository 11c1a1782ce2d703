"""Slices the examples of an evaluation by their texts, not by ids of a vocabulary.

TFMA slices by transformed features first. Of a text that the transform has mapped to
an id under the same name, a reader could not tell which text a slice is.
"""

from collections.abc import Collection
from typing import Any

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.extractors import slice_key_extractor


def custom_extractors(eval_shared_model: Any, eval_config: tfma.EvalConfig, tensor_adapter_config: Any) -> list[Any]:
    """Returns TFMA's extractors, with texts in place of ids before it slices.

    The Evaluator's executor calls this function of its module.

    Args:
      eval_shared_model: As in `tfma.default_extractors`.
      eval_config: As in `tfma.default_extractors`.
      tensor_adapter_config: As in `tfma.default_extractors`.
    """
    extractors = tfma.default_extractors(
        eval_shared_model=eval_shared_model, eval_config=eval_config, tensor_adapter_config=tensor_adapter_config
    )
    names = find_sliced_texts(eval_config)
    stages = [extractor.stage_name for extractor in extractors]
    place = stages.index(slice_key_extractor.SLICE_KEY_EXTRACTOR_STAGE_NAME)
    texts = tfma.extractors.Extractor("TextsOfSlices", beam.Map(use_texts, names=names))
    return [*extractors[:place], texts, *extractors[place:]]


def find_sliced_texts(config: tfma.EvalConfig) -> set[str]:
    """Returns the features that are sliced by their own texts.

    Features with a given value in a slice stay as they are, since it may be an id.
    """
    given = {name for spec in config.slicing_specs for name in spec.feature_values}
    return {name for spec in config.slicing_specs for name in spec.feature_keys} - given


def use_texts(extracts: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Returns an example's extracts with its own texts among transformed features.

    Args:
      extracts: TFMA's extracts of one example.
      names: Features that it is sliced by.
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
