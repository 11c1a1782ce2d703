"""A step of a pipeline: runs what TFX would run, and tells Kubeflow Pipelines what came of it."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging
from tfx.components.example_gen import driver as example_gen_driver
from tfx.components.example_gen import utils as example_gen_utils
from tfx.dsl.components.base import base_beam_executor, base_executor
from tfx.dsl.io import fileio
from tfx.orchestration.portable import outputs_utils
from tfx.types import standard_component_specs
from tfx.utils import import_utils

from tfx_distribute.components import direct_runner
from tfx_distribute.components.container import blessed_model
from tfx_distribute.components.container import executor_io as execution_lib
from tfx_distribute.components.container.names import NO_MODEL, RESOLVED_INPUT
from tfx_distribute.trainer_module.lifecycle import atomic_files

_RESOLVED = (
    standard_component_specs.INPUT_CONFIG_KEY,
    example_gen_utils.SPAN_PROPERTY_NAME,
    example_gen_utils.VERSION_PROPERTY_NAME,
    example_gen_utils.FINGERPRINT_PROPERTY_NAME,
)


def execute(
    class_path: str,
    executor_input: Mapping[str, Any],
    component: Mapping[str, Any],
    paths: Mapping[str, str],
    beam_args: Sequence[str],
) -> None:
    """Runs a component's executor.

    Args:
      class_path: Dotted path of the executor's class.
      executor_input: What the step is told.
      component: Its interface; see `execution.read`.
      paths: Where artifacts lie here; see `execution.read`.
      beam_args: Options of Beam.
    """
    execution = execution_lib.read(executor_input, component, paths)
    inputs = {name: listed for name, listed in execution.inputs.items() if not listed[0].uri.endswith(NO_MODEL)}
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
    with _temporary_folder(execution) as folder, direct_runner.as_default():
        executor = _executor(class_path, folder, list(beam_args))
        executor.Do(inputs, execution.outputs, properties)
    outputs_utils.tag_output_artifacts_with_version(execution.outputs)
    _write(executor_input, execution_lib.executor_output(execution))


def resolve_input(class_path: str, executor_input: Mapping[str, Any], component: Mapping[str, Any]) -> None:
    """Runs the driver of a file-based ExampleGen: finds its span, version and files, and takes their fingerprint.

    The ExampleGen gets them as a parameter, and so as a part of its cache key: files that have changed are never taken for
    those of an earlier run. This step itself is never cached.

    Args:
      class_path: Dotted path of the driver's class.
      executor_input: What the step is told: the ExampleGen's parameters.
      component: Its interface.
    """
    execution = execution_lib.read(executor_input, component, {})
    driver = import_utils.import_class_by_path(class_path)(metadata_handle=None)
    resolved = driver.resolve_exec_properties(execution.exec_properties, None, None)
    told = json.dumps({name: resolved[name] for name in _RESOLVED}, sort_keys=True)
    logging.info("resolved input: %s", told)
    _write(executor_input, execution_lib.executor_output(execution, {RESOLVED_INPUT: told}))


def latest_blessed_model(
    executor_input: Mapping[str, Any], metadata_service: str, pipeline: str, pipeline_root: str
) -> None:
    """Tells the address of the model that a new one is compared with, as the parameter `uri`.

    Args:
      executor_input: What the step is told.
      metadata_service: `host:port` of the metadata store.
      pipeline: Name of the pipeline.
      pipeline_root: Address that its artifacts are written under.
    """
    found = blessed_model.find(metadata_service, pipeline, pipeline_root)
    logging.info("latest blessed model: %s", found or "none")
    _write(executor_input, {"parameterValues": {"uri": found or f"{pipeline_root}/{NO_MODEL}"}})


def _executor(class_path: str, folder: str, beam_args: list[str]) -> base_executor.BaseExecutor:
    executor_class = import_utils.import_class_by_path(class_path)
    about = {"tmp_dir": folder, "unique_id": "step"}
    if issubclass(executor_class, base_beam_executor.BaseBeamExecutor):
        return executor_class(base_beam_executor.BaseBeamExecutor.Context(beam_pipeline_args=beam_args, **about))
    return executor_class(base_executor.BaseExecutor.Context(extra_flags=beam_args, **about))


@contextlib.contextmanager
def _temporary_folder(execution: execution_lib.Execution) -> Iterator[str]:
    """A folder for what Beam puts down in between; where outputs have an address, an address too, for Dataflow's workers."""
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


def _write(executor_input: Mapping[str, Any], output: Mapping[str, Any]) -> None:
    path = executor_input["outputs"]["outputFile"]
    fileio.makedirs(os.path.dirname(path))
    atomic_files.write(path, json.dumps(output))
