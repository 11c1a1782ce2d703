"""Evaluates a model with TFX's executor and corrects its verdict; see `thresholds`."""

import contextlib
import os
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_model_analysis as tfma
from absl import logging
from tensorflow_model_analysis.slicer import slicer_lib
from tfx import types
from tfx.components.evaluator import constants, executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, json_utils, path_utils, proto_utils

from tfx_distribute.components.evaluator import baseline, batches, extractors, one_class, report
from tfx_distribute.components.report import thresholds
from tfx_distribute.components.report.data import UNUSABLE_BASELINE
from tfx_distribute.trainer_module import asking
from tfx_distribute.trainer_module.errors import ConfigurationError

Artifacts = dict[str, list[types.Artifact]]
_MAX_EXAMPLES = 64  # enough to see each feature
REPORT = "report"


class Executor(executor.Executor):
    """Evaluates like TFX's executor, but no metric that is not finite is accepted."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:  # noqa: N802 (TFX)
        """Evaluates the model, and blesses it if it meets all thresholds."""
        problem = _find_problem_of_baseline(input_dict, exec_properties)
        if problem:  # judged as a first model
            input_dict = {**input_dict, standard_component_specs.BASELINE_MODEL_KEY: []}
        for model in input_dict.get(standard_component_specs.MODEL_KEY, ()):
            one_class.warn(_read_config(exec_properties), _find_saved_model(model))
        exec_properties_of_tfx, computing = _prepare(exec_properties)
        # For each batch, TensorFlow formats an error message that is never shown, with
        # all values of the batch unless NumPy shortens them.
        with computing, np.printoptions(threshold=0):
            super().Do(input_dict, output_dict, exec_properties_of_tfx)
        _check_slices(input_dict, output_dict, exec_properties)
        _judge(input_dict, output_dict, exec_properties, problem)
        if exec_properties.get(REPORT):
            try:
                report.write(exec_properties[REPORT], input_dict, output_dict)
            except Exception:  # the evaluation counts even if its report fails
                logging.exception("The report cannot be written")


def _judge(input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any], unusable_baseline: str) -> None:
    """Judges the model, and blesses it if it meets all thresholds.

    Without thresholds, nothing is blessed. `unusable_baseline` says why the baseline
    was left out; empty if it was not.
    """
    blessing = artifact_utils.get_single_instance(output_dict[standard_component_specs.BLESSING_KEY])
    if blessing.has_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY):  # the evaluation has thresholds
        folder = artifact_utils.get_single_uri(output_dict[standard_component_specs.EVALUATION_KEY])
        validation, not_finite = thresholds.judge(
            _read_config(exec_properties),
            tfma.load_metrics(folder),
            tfma.load_validation_result(folder),
            has_baseline=bool(input_dict.get(standard_component_specs.BASELINE_MODEL_KEY)),
        )
        for on_slice in validation.metric_validations_per_slice:
            slice_key = slicer_lib.deserialize_slice_key(on_slice.slice_key)
            for failure in on_slice.failures:
                if failure.message:
                    name = thresholds.describe_metric(failure.metric_key, slice_key)
                    logging.warning("%s meets no threshold: %s", name, failure.message)
        unusable_baseline = f"its {not_finite} is not finite" if not_finite else unusable_baseline
        (path,) = fileio.glob(os.path.join(folder, f"{tfma.constants.VALIDATIONS_KEY}*"))
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(validation.SerializeToString())
        _bless(blessing, validation.validation_ok)
    if unusable_baseline:
        logging.warning("The latest blessed model is not compared with: %s", unusable_baseline)
        blessing.set_string_custom_property(UNUSABLE_BASELINE, unusable_baseline)


def _read_config(exec_properties: dict[str, Any]) -> tfma.EvalConfig:
    config = tfma.EvalConfig()
    proto_utils.json_to_proto(exec_properties[standard_component_specs.EVAL_CONFIG_KEY], config)
    return config


def _prepare(exec_properties: dict[str, Any]) -> tuple[dict[str, Any], contextlib.AbstractContextManager[None]]:
    """Returns parameters for TFX's executor, and the context to evaluate in."""
    config = _read_config(exec_properties)
    with_weights = proto_utils.proto_to_json(thresholds.add_total_weights(config))
    exec_properties = {**exec_properties, standard_component_specs.EVAL_CONFIG_KEY: with_weights}
    if _has_own_code(exec_properties):
        return exec_properties, contextlib.nullcontext()
    exec_properties[standard_component_specs.MODULE_PATH_KEY] = extractors.__name__
    return exec_properties, batches.computing() if batches.can_batch(config) else contextlib.nullcontext()


def _has_own_code(exec_properties: dict[str, Any]) -> bool:
    keys = (standard_component_specs.MODULE_FILE_KEY, standard_component_specs.MODULE_PATH_KEY)
    return any(exec_properties.get(key) for key in keys)


def _find_problem_of_baseline(input_dict: Artifacts, exec_properties: dict[str, Any]) -> str:
    """Returns why the baseline is left out; empty if it is not, or is not there."""
    models = input_dict.get(standard_component_specs.BASELINE_MODEL_KEY)
    new_models = input_dict.get(standard_component_specs.MODEL_KEY)
    if not (models and new_models):
        return ""
    if models[0].uri == new_models[0].uri:
        # An earlier run has blessed it, and may have ended before the push. Compared
        # with itself, it would never be better.
        return "it is the new model itself, which was blessed before"
    if _has_own_code(exec_properties):
        return ""  # the module may load models in its own way
    if not fileio.exists(models[0].uri):
        return f"{models[0].uri} is not there any more"
    config = _read_config(exec_properties)
    updated = tfma.utils.update_eval_config_with_defaults(config, has_baseline=True, rubber_stamp=True)
    examples = asking.read_examples(_find_example_files(input_dict, exec_properties), _MAX_EXAMPLES)
    for spec in updated.model_specs:
        if spec.is_baseline and examples:
            return baseline.find_problem(_find_saved_model(models[0]), spec, examples, _find_saved_model(new_models[0]))
    return ""


def _check_slices(input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
    """Checks that there are examples of each kind of slice: TFMA leaves the others out.

    The model would be blessed without the thresholds on a slice whose name is wrong.
    """
    specs = [spec for spec in _read_config(exec_properties).slicing_specs if spec.feature_keys]
    if not specs or not asking.read_examples(_find_example_files(input_dict, exec_properties), 1):
        return
    metrics = tfma.load_metrics(artifact_utils.get_single_uri(output_dict[standard_component_specs.EVALUATION_KEY]))
    found = {frozenset(key.column for key in each.slice_key.single_slice_keys) for each in metrics}
    for spec in specs:
        if {*spec.feature_keys, *spec.feature_values} not in found:
            raise ConfigurationError(
                f"evaluate.slices: no evaluated example has {' and '.join(map(repr, spec.feature_keys))}; write features of "
                "the examples, before or after the transform"
            )


def _find_saved_model(model: types.Artifact) -> str:
    return str(path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model)))


def _find_example_files(input_dict: Artifacts, exec_properties: dict[str, Any]) -> list[str]:
    splits = json_utils.loads(exec_properties.get(standard_component_specs.EXAMPLE_SPLITS_KEY, "null")) or ["eval"]
    examples = input_dict[standard_component_specs.EXAMPLES_KEY]
    folders = [folder for split in splits for folder in artifact_utils.get_split_uris(examples, split)]
    return [file for folder in folders for file in sorted(fileio.glob(io_utils.all_files_pattern(folder)))]


def _bless(blessing: types.Artifact, is_blessed: bool) -> None:
    file_names = (constants.NOT_BLESSED_FILE_NAME, constants.BLESSED_FILE_NAME)
    old, new = (os.path.join(blessing.uri, file_names[value]) for value in (not is_blessed, is_blessed))
    if fileio.exists(old):
        fileio.remove(old)
    io_utils.write_string_file(new, "")
    value = constants.BLESSED_VALUE if is_blessed else constants.NOT_BLESSED_VALUE
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)
