"""Gives a model the weights of a base model, and freezes layers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingJob, WarmStartResult
from tfx_distribute.trainer_module.job.warm_start import WarmStart, matches
from tfx_distribute.trainer_module.keras.keras_models import is_keras_3
from tfx_distribute.trainer_module.reporting.process_log import LOGGER
from tfx_distribute.trainer_module.state.base_model import location, matching, model_weights, vocabularies, weight_files


def freeze(model: tf.keras.Model, patterns: Sequence[str]) -> None:
    """Freezes the layers that patterns match, before the optimizer makes variables."""
    layers = list(model_weights.iterate_layers(model)) if patterns else []
    for pattern in patterns:
        matching_layers = [layer for path, layer in layers if matches(pattern, path)]
        if not matching_layers:
            raise ConfigurationError(
                f"base_model.freeze: {pattern!r} matches no layer; the model has "
                f"{', '.join(path for path, _ in layers) or 'none before it is called'}"
            )
        for layer in matching_layers:
            layer.trainable = False


def apply(job: TrainingJob, model: tf.keras.Model, optimizer: Any, transform_output: Any) -> WarmStartResult | None:
    """Gives the model the weights of the job's base model, if there is one.

    Call this in the strategy's scope in every process that has the model's variables,
    when they exist and before a saved state is restored. `optimizer` is the model's, if
    it has variables already.
    """
    if not job.base_model:
        return None
    path = location.find(job.base_model)
    result = _take(path, job.warm_start, model, transform_output)
    for _, layer in model_weights.iterate_layers(model):
        if isinstance(layer, tf.keras.layers.Normalization):  # which computes with copies of its weights
            layer.finalize_state()
    _reset_averages(optimizer, model)
    LOGGER.info("base_model: took %d weights from %s, and skipped %d", result.weights_taken, path, result.weights_skipped)
    return result


def _take(path: str, settings: WarmStart, model: tf.keras.Model, transform_output: Any) -> WarmStartResult:
    """Gives the model the weights that correspond by their names."""
    base, has_paths = weight_files.read(path, model)
    base = [replace(weight, name=settings.rename_path(weight.name)) for weight in base]
    weights = model_weights.list_weights(model)
    names = [weight.path if has_paths else weight.variable_name for weight in weights]
    found = matching.match(base, weights, names, model_weights.automatic_names(model))
    rows: dict[str, tuple[vocabularies.Vocabularies, int]] = {}  # path of a weight -> its entries, and their dimension
    for pattern, rule in settings.vocabularies.items():
        if not any(matches(pattern, weight.path) for weight in weights):
            raise ConfigurationError(
                f"base_model.vocabularies: {pattern!r} matches no weight: {_describe(path, base, weights)}"
            )
        entries = vocabularies.read(rule, path, transform_output)
        named = [pair for pair in found.pairs if matches(pattern, pair[0].path)]
        axes = {
            weight.path: (entries, axis)
            for weight, other in named
            if (axis := entries.find_axis(weight.path.rpartition("/")[2], weight.shape, other.shape)) is not None
        }
        if named and not axes:
            shapes = ", ".join(f"{weight.path} {list(weight.shape)}" for weight, _ in named)
            raise ConfigurationError(
                f"base_model.vocabularies: {rule!r} has {len(entries.old)} entries in the base model and "
                f"{len(entries.new)} now; no weight that {pattern!r} matches has as many inputs or outputs: {shapes}"
            )
        rows |= axes
    fitting = [
        (weight, other)
        for weight, other in found.pairs
        if weight.shape == other.shape
        or (weight.path in rows and _differ_only(weight.shape, other.shape, rows[weight.path][1]))
    ]
    if not fitting:
        raise ConfigurationError(
            f"base_model: another architecture: {_describe(path, base, weights)}; write another base model, or rename"
        )
    differing = [pair for pair in found.pairs if pair not in fitting]
    differences = matching.describe_differences(replace(found, pairs=differing))
    if differences and settings.mismatch == "fail":
        raise ConfigurationError(
            f"base_model: {path} differs from the model: {'; '.join(differences)}. Write mismatch: skip to take the other "
            "weights and train these from scratch; rename for layers with new names; or vocabularies for embeddings and "
            "outputs whose vocabulary has changed"
        )
    for difference in differences:
        LOGGER.info("base_model: skipped %s", difference)
    for weight, base_weight in fitting:
        value = base_weight.read()
        if weight.path in rows:
            entries, axis = rows[weight.path]
            value = entries.move_rows(weight.path, weight.read(), value, axis)
        weight.assign(value)
    used = {rows[weight.path][0].file: rows[weight.path][0] for weight, _ in fitting if weight.path in rows}
    known = sum(len({*entries.old} & {*entries.new}) for entries in used.values())
    return WarmStartResult(
        len(fitting),
        len(weights) - len(fitting),
        known,
        sum(len(entries.new) for entries in used.values()) - known,
        vocabularies.find_reordered(path, transform_output, used),
    )


def _differ_only(shape: Sequence[int], other: Sequence[int], axis: int) -> bool:
    return [*shape[:axis], *shape[axis + 1 :]] == [*other[:axis], *other[axis + 1 :]]


def _reset_averages(optimizer: Any, model: tf.keras.Model) -> None:
    """Starts the moving averages of weights from the weights that were taken over.

    Keras 2 starts them when the optimizer is built; Keras 3, with the first step.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    averages = getattr(inner, "_model_variables_moving_average", None)  # None before it is built
    if averages and not is_keras_3():
        for average, variable in zip(averages, model.trainable_variables, strict=True):
            average.assign(variable)


def _describe(path: str, base: Sequence[matching.BaseWeight], weights: Sequence[model_weights.ModelWeight]) -> str:
    names, paths = [weight.name for weight in base], [weight.path for weight in weights]
    return f"{path} has {', '.join(names[:4])} ({len(names)} in all), the model {', '.join(paths[:4])} ({len(paths)} in all)"
