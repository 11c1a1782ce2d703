"""Reads what Kubeflow Pipelines passes to a step, and writes what the step returns.

Converts KFP's ExecutorInput into the arguments of a TFX executor, and its output
artifacts into KFP's ExecutorOutput. Both documents are JSON:
https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1/pipeline_spec.proto They
are not parsed as those protobufs: later backends add fields that older protobufs do not
have.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.types import artifact as artifact_lib
from tfx.utils import import_utils

from tfx_distribute.components.report import artifact_types
from tfx_distribute.trainer_module.errors import ConfigurationError

# Schemes of addresses that only Kubeflow's launcher can read: it copies inputs and
# outputs between them and a folder of the container. TFX, TensorFlow and Beam read
# gs:// themselves, and so do workers of Dataflow and pods of a TFJob.
COPIED_SCHEMES = ("s3://", "minio://")
# Keys that Kubeflow adds to the metadata of artifacts.
_KUBEFLOW_KEYS = ("display_name", "store_session_info")


@dataclass(frozen=True)
class Execution:
    """Arguments of a TFX executor.

    `inputs` and `outputs` have the paths that the executor reads and writes.

    Attributes:
      addresses: Path in this container -> address of an artifact, where they differ.
    """

    inputs: dict[str, list[types.Artifact]]
    outputs: dict[str, list[types.Artifact]]
    exec_properties: dict[str, Any]
    addresses: Mapping[str, str]


def read(executor_input: Mapping[str, Any], interface: Mapping[str, Any], paths: Mapping[str, str]) -> Execution:
    """Converts an ExecutorInput into the arguments of a TFX executor.

    Args:
      executor_input: KFP's ExecutorInput of the step.
      interface: What the backend leaves out of an ExecutorInput: `inputs` and `outputs`
        have the type of each artifact by name, such as `tfx.Model`; `integer` and
        `double` are the names of parameters that are numbers.
      paths: `inputs/NAME` or `outputs/NAME` -> path in this container where Kubeflow's
        launcher has the artifact.

    Raises:
      ConfigurationError: An input has several artifacts.
    """
    addresses: dict[str, str] = {}
    artifact_types.register()

    def convert(kind: str) -> dict[str, list[types.Artifact]]:
        runtime_artifacts = executor_input.get(kind, {}).get("artifacts", {})
        converted = {}
        # Only those that the component declares: Kubeflow adds an output for the log.
        for name, title in interface[kind].items():
            listed = runtime_artifacts.get(name, {}).get("artifacts", [])
            if len(listed) > 1:  # the launcher gives the path of the first only
                raise ConfigurationError(
                    f"{name}: {len(listed)} artifacts are given, but a TFX component takes only one here"
                )
            converted[name] = [
                _convert_artifact(runtime, title, paths.get(f"{kind}/{name}", ""), addresses) for runtime in listed
            ]
        return {name: listed for name, listed in converted.items() if listed}

    # JSON has only one type of numbers.
    numbers = {**dict.fromkeys(interface["integer"], int), **dict.fromkeys(interface["double"], float)}
    values = executor_input.get("inputs", {}).get("parameterValues", {})
    return Execution(
        inputs=convert("inputs"),
        outputs=convert("outputs"),
        exec_properties={
            name: numbers[name](value) if name in numbers else value for name, value in values.items() if value is not None
        },
        addresses=addresses,
    )


def make_executor_output(execution: Execution, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Makes the ExecutorOutput, which Kubeflow's launcher reads after the step.

    It has what the executor has written into its output artifacts, and the values of
    output `parameters`.
    """
    artifacts = {}
    for name, (artifact,) in execution.outputs.items():
        metadata = {key: _replace_path(value, execution.addresses) for key, value in _read_metadata(artifact).items()}
        uri = execution.addresses.get(artifact.uri, artifact.uri)
        artifacts[name] = {"artifacts": [{"name": artifact.mlmd_artifact.name, "uri": uri, "metadata": metadata}]}
    return {"artifacts": artifacts, "parameterValues": dict(parameters or {})}


def _convert_artifact(runtime: Mapping[str, Any], title: str, path: str, addresses: dict[str, str]) -> types.Artifact:
    """Converts an artifact of KFP, and adds its path to the addresses."""
    artifact: types.Artifact = import_utils.import_class_by_path(compiler_utils.TITLE_TO_CLASS_PATH.get(title, title))()
    name, uri = runtime.get("name", ""), runtime["uri"]
    artifact.mlmd_artifact.name = name
    artifact.id = _numeric_id(name)
    artifact.uri = uri
    if uri.startswith(COPIED_SCHEMES):
        artifact.uri = path
        addresses[path] = uri
    for key, value in runtime.get("metadata", {}).items():
        if key not in _KUBEFLOW_KEYS and value is not None:
            _set_property(artifact, key, _unwrap(value))
    _ = artifact.mlmd_artifact  # reading it makes values set as JSON visible to TFX's accessors
    return artifact


def _numeric_id(name: str) -> int:
    """Returns a numeric id for an artifact's name.

    TFX has numbers where Kubeflow has names, most of which are digits.
    """
    return int(name) if name.isdigit() else int(hashlib.sha256(name.encode()).hexdigest(), 16) % (1 << 63)


def _unwrap(value: Any) -> Any:
    """Returns a value of metadata without the wrapper of Kubeflow's metadata store."""
    if isinstance(value, dict) and list(value) in (["list"], ["struct"]):
        return next(iter(value.values()))
    return value


def _set_property(artifact: types.Artifact, key: str, value: Any) -> None:
    """Sets a property or custom property of an artifact."""
    properties = artifact.artifact_type.properties
    if key in properties and not isinstance(value, dict | list):
        if properties[key] == metadata_store_pb2.INT:
            value = int(value)
        setattr(artifact, key, value)
        return
    prefix = artifact_lib.CUSTOM_PROPERTIES_PREFIX
    if key.startswith(prefix) and key.removeprefix(prefix) in properties:
        key = key.removeprefix(prefix)
    if isinstance(value, str):
        artifact.set_string_custom_property(key, value)
    else:
        # TFX converts numbers in JSON to the type that is read, if they are floats.
        artifact.set_json_value_custom_property(key, float(value) if isinstance(value, int) else value)


def _read_metadata(artifact: types.Artifact) -> dict[str, Any]:
    """Returns properties and custom properties as one mapping, as TFX does for KFP."""
    declared = artifact.artifact_type.properties
    metadata = {key: _plain_value(value) for key, value in artifact.mlmd_artifact.properties.items()}
    for key, value in artifact.mlmd_artifact.custom_properties.items():
        plain = artifact.get_json_value_custom_property(key) if value.HasField("struct_value") else _plain_value(value)
        metadata[f"{artifact_lib.CUSTOM_PROPERTIES_PREFIX}{key}" if key in declared else key] = plain
    return {key: value for key, value in metadata.items() if value is not None}  # Kubeflow refuses null


def _plain_value(value: metadata_store_pb2.Value) -> Any:
    """Returns the Python value of a number, string or bool; None for others."""
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind in ("int_value", "double_value", "string_value", "bool_value") else None


def _replace_path(value: Any, addresses: Mapping[str, str]) -> Any:
    """Replaces a path of this container, which is unknown elsewhere, by its address."""
    if isinstance(value, str):
        for path, address in addresses.items():
            if value == path or value.startswith(f"{path}/"):
                return address + value[len(path) :]
    return value
