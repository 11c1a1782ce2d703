"""Runs what TFX would run in a step, and reports the outcome to Kubeflow Pipelines."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging
from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants as evaluator_constants
from tfx.components.example_gen import driver as example_gen_driver
from tfx.components.example_gen import utils as example_gen_utils
from tfx.dsl.components.base import base_beam_executor, base_executor
from tfx.dsl.io import fileio
from tfx.orchestration.portable import outputs_utils
from tfx.types import standard_component_specs
from tfx.utils import import_utils

from tfx_distribute.components.beam import direct_runner, patches
from tfx_distribute.components.container import BLESSING, NO_ARTIFACT, RESOLVED_INPUT, executor_io, kubeflow_services
from tfx_distribute.components.example_gen.names import COLUMN_TYPES, LAST_SPAN
from tfx_distribute.components.report import artifact_types
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import DataError
from tfx_distribute.trainer_module.keras import autograph

_RESOLVED = (
    standard_component_specs.INPUT_CONFIG_KEY,
    example_gen_utils.SPAN_PROPERTY_NAME,
    example_gen_utils.VERSION_PROPERTY_NAME,
    example_gen_utils.FINGERPRINT_PROPERTY_NAME,
    LAST_SPAN,  # the ExampleGen reads it even if newer data has arrived since
    COLUMN_TYPES,
)


def execute(
    class_path: str,
    executor_input: Mapping[str, Any],
    interface: Mapping[str, Any],
    paths: Mapping[str, str],
    beam_args: Sequence[str],
) -> None:
    """Runs the executor of a component, whose class has the dotted path `class_path`.

    For the other arguments, see `executor_io.read`; `beam_args` are options for Beam.
    """
    execution = executor_io.read(executor_input, interface, paths)
    inputs = {name: artifacts for name, artifacts in execution.inputs.items() if not artifacts[0].uri.endswith(NO_ARTIFACT)}
    properties = execution.exec_properties
    resolved = properties.pop(RESOLVED_INPUT, None)
    if resolved is not None:
        properties.update(json.loads(resolved))
        (examples,) = execution.outputs[standard_component_specs.EXAMPLES_KEY]
        example_gen_driver.update_output_artifact(properties, examples.mlmd_artifact)
    outputs_utils.make_output_dirs(execution.outputs)
    for kind, artifacts in (("input", inputs), ("output", execution.outputs)):
        for name, (artifact, *_) in artifacts.items():
            logging.info("%s %s: %s", kind, name, execution.addresses.get(artifact.uri, artifact.uri))
    logging.info("%s: %s", class_path, properties)
    patches.install()
    autograph.exempt_libraries()  # which the Evaluator's metrics use, with every version of Keras
    with _temporary_folder(execution) as folder, direct_runner.as_default():
        executor = _create_executor(class_path, folder, list(beam_args))
        result = getattr(executor.Do(inputs, execution.outputs, properties), "execution_result", None)
    if result and result.code:
        raise DataError(result.result_message)
    # The pages of Kubeflow Pipelines show each property of a `system.` artifact.
    prefix = artifact_types.PREFIX
    tagged = {name: listed for name, listed in execution.outputs.items() if not listed[0].type_name.startswith(prefix)}
    outputs_utils.tag_output_artifacts_with_version(tagged)
    _write_output(executor_input, executor_io.make_executor_output(execution))


def resolve_input(class_path: str, executor_input: Mapping[str, Any], interface: Mapping[str, Any]) -> None:
    """Finds the span, version and fingerprint of the input of a file-based ExampleGen.

    Runs the ExampleGen's driver, the class at `class_path`. The ExampleGen gets the
    outcome as a parameter, and so as a part of its cache key: changed files never count
    as those of an earlier run. This step itself is never cached.
    """
    execution = executor_io.read(executor_input, interface, {})
    driver = import_utils.import_class_by_path(class_path)(metadata_handle=None)
    resolved = driver.resolve_exec_properties(execution.exec_properties, None, None)
    resolved_input = json.dumps({name: resolved[name] for name in _RESOLVED if name in resolved}, sort_keys=True)
    logging.info("resolved input: %s", resolved_input)
    _write_output(executor_input, executor_io.make_executor_output(execution, {RESOLVED_INPUT: resolved_input}))


def find_latest(
    executor_input: Mapping[str, Any], metadata_service: str, pipeline: str, pipeline_root: str, type_name: str
) -> None:
    """Writes the address of the latest artifact of a type, as the parameter `uri`.

    Evaluator compares a new model with the latest blessed one, and ExampleValidator new
    data with those before. TFX has resolvers for this, which open-source Kubeflow
    Pipelines does not support; its metadata store, at `metadata_service`, has what is
    needed.
    """
    artifacts = kubeflow_services.list_artifacts(metadata_service, kubeflow_services.PIPELINE_CONTEXT, pipeline)
    uri = select_latest(artifacts.get(type_name, ()), pipeline_root, type_name)
    logging.info("latest %s: %s", type_name, uri or "none")
    _write_output(executor_input, {"parameterValues": {"uri": uri or f"{pipeline_root}/{NO_ARTIFACT}"}})


def select_latest(artifacts: Iterable[metadata_store_pb2.Artifact], pipeline_root: str, type_name: str) -> str | None:
    """Returns the address of the latest artifact of a type; None if there is none.

    With the type name of blessings, it is that of the latest blessed model. Either has
    to be below the root: the metadata store identifies a pipeline by its name only, and
    another team may use the same name.
    """
    found = []
    for artifact in artifacts:
        properties, uri = artifact.custom_properties, artifact.uri
        if type_name == BLESSING:
            blessed = properties[evaluator_constants.ARTIFACT_PROPERTY_BLESSED_KEY]
            if 1 not in (blessed.double_value, blessed.int_value):  # Kubeflow stores all numbers as doubles
                continue
            uri = properties[evaluator_constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY].string_value
        if uri.startswith(f"{pipeline_root.rstrip('/')}/"):
            found.append((artifact.create_time_since_epoch, artifact.id, str(uri)))
    return max(found)[-1] if found else None


def _create_executor(class_path: str, folder: str, beam_args: list[str]) -> base_executor.BaseExecutor:
    executor_class = import_utils.import_class_by_path(class_path)
    context = {"tmp_dir": folder, "unique_id": "step"}
    if issubclass(executor_class, base_beam_executor.BaseBeamExecutor):
        return executor_class(base_beam_executor.BaseBeamExecutor.Context(beam_pipeline_args=beam_args, **context))
    return executor_class(base_executor.BaseExecutor.Context(extra_flags=beam_args, **context))


@contextlib.contextmanager
def _temporary_folder(execution: executor_io.Execution) -> Iterator[str]:
    """Yields a temporary folder for Beam.

    If outputs have addresses, it has one too, so that Dataflow's workers can reach it.
    """
    remote = [artifact.uri for (artifact,) in execution.outputs.values() if "://" in artifact.uri]
    if not remote:
        with tempfile.TemporaryDirectory(prefix="tfx-distribute-") as folder:
            yield folder
        return
    address = f"{os.path.dirname(remote[0])}/.temp"
    try:
        yield address
    finally:
        if fileio.exists(address):
            fileio.rmtree(address)


def _write_output(executor_input: Mapping[str, Any], output: Mapping[str, Any]) -> None:
    """Writes an ExecutorOutput to the file that Kubeflow's launcher reads."""
    path = executor_input["outputs"]["outputFile"]
    fileio.makedirs(os.path.dirname(path))
    atomic_files.write(path, json.dumps(output))
