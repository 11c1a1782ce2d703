"""Gives a model the weights of a base model, and freezes layers."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import layer_patterns
from tfx_distribute.trainer_module.job.training_job import TrainingJob, TrainingOptions, WarmStart
from tfx_distribute.trainer_module.keras.keras_models import is_keras_3
from tfx_distribute.trainer_module.reporting.process_log import LOGGER
from tfx_distribute.trainer_module.state.base_model import (
    checkpoints,
    keras_files,
    location,
    matching,
    names,
    target_weights,
    vocabularies,
)
from tfx_distribute.trainer_module.state.base_model.location import Location
from tfx_distribute.trainer_module.state.base_model.sources import Source
from tfx_distribute.trainer_module.state.base_model.target_weights import TargetWeight


def freeze(model: tf.keras.Model, patterns: str) -> None:
    """Freezes the layers that the parameter `freeze` names.

    Call this before the optimizer makes variables for the layers.

    Args:
      model: The model that `build_model` returned.
      patterns: Value of the parameter.

    Raises:
      ConfigurationError: A pattern matches no layer, or the model has none yet.
    """
    layers = list(target_weights.iterate_layers(model)) if patterns else []
    for pattern in layer_patterns.parse_patterns("freeze", patterns):
        matching_layers = [layer for path, layer in layers if pattern.search(path)]
        if not matching_layers:
            shown = pattern.pattern.removeprefix("(?:^|(?<=/))(?:").removesuffix(")(?=/|$)")
            raise ConfigurationError(
                f"freeze: {shown!r} matches no layer; the model has "
                f"{', '.join(path for path, _ in layers) or 'none before it is called'}"
            )
        for layer in matching_layers:
            layer.trainable = False


def apply(job: TrainingJob, model: tf.keras.Model, optimizer: Any, transform_output: Any, strategy: Any) -> WarmStart | None:
    """Gives the model the weights of the job's base model, if there is one.

    Call this in the strategy's scope in every process that has the model's variables,
    when they exist and before a saved state is restored.

    Args:
      job: The training job.
      model: The built model.
      optimizer: Its optimizer, if it has variables already.
      transform_output: The transform graph of the training's examples; None for none.
      strategy: The strategy.

    Returns:
      How much was taken over; None without a base model.

    Raises:
      ConfigurationError: There is no such base model, or it does not fit the model.
    """
    if not job.base_model:
        return None
    options = job.training_options
    found = location.find(job.base_model)
    with contextlib.closing(_open(found)) as source:
        targets = target_weights.list_weights(model, with_file_keys=found.kind == location.KERAS_FILE)
        matches = _match(source, targets, model, options).without_adapted()
        targets = [target for target in targets if not target.is_adapted]
        rows = vocabularies.RowTransfers(options.base_model_vocabularies, found, transform_output)
        rows.check(targets)
        fitting = [pair for pair in matches.pairs if pair[0].shape == pair[1].shape or rows.covers(*pair)]
        if not fitting:
            raise ConfigurationError(
                f"base_model: {found.path} has another architecture: none of its {len(source.weights)} weights "
                f"({_some([weight.names.path for weight in source.weights])}) corresponds to one of the model's "
                f"{len(targets)} ({_some([target.path for target in targets])}); write another base model, or "
                "base_model_mapping"
            )
        others = tuple(pair for pair in matches.pairs if pair not in fitting)
        differing = matching.Matches(others, matches.unmatched_targets, matches.unmatched_sources)
        differences = matching.describe_differences(differing)
        if differences and options.base_model_mismatch == "fail":
            raise ConfigurationError(_describe(found, differing, differences))
        for target, weight in fitting:
            value = source.read(weight)
            target.assign(rows.transfer(target, value) if rows.covers(target, weight) else value, strategy)
    for _, layer in target_weights.iterate_layers(model):
        if isinstance(layer, tf.keras.layers.Normalization):  # which computes with copies of its weights
            layer.finalize_state()
    _reset_averages(optimizer, model)
    result = WarmStart(len(fitting), len(targets) - len(fitting), rows.entries_taken, rows.entries_new)
    LOGGER.info("base_model: took %d of %d weights from the %s %s", len(fitting), len(targets), found.kind, found.path)
    for difference in differences:
        LOGGER.info("base_model: skipped %s", difference)
    return result


def _reset_averages(optimizer: Any, model: tf.keras.Model) -> None:
    """Starts the moving averages of weights from the weights that were taken over.

    Keras 2 starts them when the optimizer is built; Keras 3, with the first step.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    averages = getattr(inner, "_model_variables_moving_average", None)  # None before it is built
    if averages and not is_keras_3():
        for average, variable in zip(averages, model.trainable_variables, strict=True):
            average.assign(variable)


def _open(found: Location) -> Source:
    if found.kind == location.KERAS_FILE:
        return keras_files.KerasFileSource(found.path)
    return checkpoints.CheckpointSource(found.checkpoint, found.path if found.kind == location.SAVED_MODEL else None)


def _match(
    source: Source, targets: Sequence[TargetWeight], model: tf.keras.Model, options: TrainingOptions
) -> matching.Matches:
    by_variable = source.find_by_structure(model)
    structure = {index: key for index, target in enumerate(targets) if (key := _find_key(target, by_variable))}
    layers = [layer for _, layer in target_weights.iterate_layers(model)]
    bases = names.automatic_bases((model, *layers))
    return matching.match(
        source.weights, targets, structure, layer_patterns.parse_mapping(options.base_model_mapping), bases, model.name
    )


def _find_key(target: TargetWeight, by_variable: Mapping[int, str]) -> str | None:
    ids = [id(getattr(variable, "_value", variable)) for variable in target.parts]
    return next((by_variable[identity] for identity in ids if identity in by_variable), None)


def _describe(found: Location, differing: matching.Matches, differences: Sequence[str]) -> str:
    remedies = ["base_model_mismatch=skip to take the other weights and train these from scratch"]
    renamed = matching.find_renamed(differing)
    remedies.append(f"base_model_mapping={renamed or 'OLD = NEW'!r} for layers with new names")
    embeddings = [
        target.path
        for target, weight in differing.pairs
        if target.path.endswith("embeddings") and target.shape[1:] == weight.shape[1:] and target.shape[0] != weight.shape[0]
    ]
    if embeddings:
        layer = embeddings[0].rpartition("/")[0] or embeddings[0]
        remedies.append(
            f"base_model_vocabularies='{layer} = NAME' with the vocabulary that the rows are of, if it has changed"
        )
    return f"base_model: {found.path} differs from the model: {'; '.join(differences)}. Write {', or '.join(remedies)}"


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:4]) + (", ..." if len(paths) > 4 else "")
