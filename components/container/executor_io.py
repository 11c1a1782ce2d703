"""What Kubeflow Pipelines tells a step -> what a TFX executor is told; and back, what came of it.

The documents are KFP's ExecutorInput and ExecutorOutput, JSON:
https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1/pipeline_spec.proto. They are read as JSON and not as those
protobufs: backends of later versions have fields in them that older protobufs do not know.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.types import artifact as artifact_lib
from tfx.utils import import_utils

from tfx_distribute.trainer_module.errors import ConfigurationError

# Roots that only Kubeflow's launcher knows, which copies inputs and outputs between them and a folder of the container. That
# of gs:// is for TFX itself, TensorFlow and Beam to read: workers of Dataflow and pods of a TFJob see it too.
COPIED = ("s3://", "minio://")
_NUMBERS: dict[str, Callable[[Any], Any]] = {"NUMBER_INTEGER": int, "NUMBER_DOUBLE": float}  # JSON knows one kind
_OF_KUBEFLOW = ("display_name", "store_session_info")  # that it adds to what an artifact's metadata are


@dataclass(frozen=True)
class Execution:
    """What a TFX executor is told.

    Attributes:
      inputs: Input artifacts, with the paths that the executor reads.
      outputs: Output artifacts, with the paths that it writes.
      exec_properties: Its parameters.
      addresses: Path in this container -> address of the same, where they are not one.
    """

    inputs: dict[str, list[types.Artifact]]
    outputs: dict[str, list[types.Artifact]]
    exec_properties: dict[str, Any]
    addresses: Mapping[str, str]


def read(executor_input: Mapping[str, Any], component: Mapping[str, Any], paths: Mapping[str, str]) -> Execution:
    """Makes TFX's artifacts and parameters.

    Args:
      executor_input: What the step is told.
      component: The step's interface, a ComponentSpec: a backend leaves out the types of input artifacts and parameters.
      paths: Name of an artifact, `inputs/NAME` or `outputs/NAME` -> where Kubeflow's launcher has it in this container.

    Raises:
      ConfigurationError: An input has several artifacts.
    """
    addresses: dict[str, str] = {}

    def artifacts(kind: str) -> dict[str, list[types.Artifact]]:
        definitions = component.get(f"{kind[:-1]}Definitions", {}).get("artifacts", {})
        found = executor_input.get(kind, {}).get("artifacts", {})
        made = {}
        # Only what the component declares: Kubeflow adds an output for the log.
        for name, definition in definitions.items():
            listed = found.get(name, {}).get("artifacts", [])
            if len(listed) > 1:  # of which the launcher would tell the path of the first only
                raise ConfigurationError(
                    f"{name}: {len(listed)} artifacts are given, and a component of TFX's takes one here"
                )
            made[name] = [_artifact(runtime, definition, paths.get(f"{kind}/{name}", ""), addresses) for runtime in listed]
        return {name: listed for name, listed in made.items() if listed}

    declared = component.get("inputDefinitions", {}).get("parameters", {})
    values = executor_input.get("inputs", {}).get("parameterValues", {})
    return Execution(
        inputs=artifacts("inputs"),
        outputs=artifacts("outputs"),
        exec_properties={
            name: _NUMBERS.get(declared[name].get("parameterType"), lambda value: value)(values[name])
            for name in declared
            if values.get(name) is not None
        },
        addresses=addresses,
    )


def executor_output(execution: Execution, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document that Kubeflow's launcher reads when the step is done.

    Args:
      execution: What the executor was told, and has written into its output artifacts.
      parameters: Output parameters.
    """
    artifacts = {}
    for name, (artifact,) in execution.outputs.items():
        metadata = {key: _with_addresses(value, execution.addresses) for key, value in _metadata(artifact).items()}
        uri = execution.addresses.get(artifact.uri, artifact.uri)
        artifacts[name] = {"artifacts": [{"name": artifact.mlmd_artifact.name, "uri": uri, "metadata": metadata}]}
    return {"artifacts": artifacts, "parameterValues": dict(parameters or {})}


def _artifact(
    runtime: Mapping[str, Any], definition: Mapping[str, Any], path: str, addresses: dict[str, str]
) -> types.Artifact:
    kind = definition["artifactType"]
    title = kind.get("schemaTitle") or yaml.safe_load(kind["instanceSchema"])["title"]
    artifact: types.Artifact = import_utils.import_class_by_path(compiler_utils.TITLE_TO_CLASS_PATH.get(title, title))()
    name, uri = runtime.get("name", ""), runtime["uri"]
    artifact.mlmd_artifact.name = name
    artifact.id = _number(name)
    artifact.uri = uri
    if uri.startswith(COPIED):
        artifact.uri = path
        addresses[path] = uri
    for key, value in runtime.get("metadata", {}).items():
        if key not in _OF_KUBEFLOW and value is not None:
            _set(artifact, key, _unwrapped(value))
    _ = artifact.mlmd_artifact  # TFX's accessors see what was set as JSON only when it has been asked for
    return artifact


def _number(name: str) -> int:
    """The id of an artifact: TFX has numbers where Kubeflow has names, most of them digits."""
    return int(name) if name.isdigit() else int(hashlib.sha256(name.encode()).hexdigest(), 16) % (1 << 63)


def _unwrapped(value: Any) -> Any:
    """A value of metadata, without what Kubeflow's metadata store has put around it."""
    if isinstance(value, dict) and list(value) in (["list"], ["struct"]):
        return next(iter(value.values()))
    return value


def _set(artifact: types.Artifact, key: str, value: Any) -> None:
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
        # As JSON, whose numbers TFX takes for whole ones or not as whoever reads them wants; but they have to be floats.
        artifact.set_json_value_custom_property(key, float(value) if isinstance(value, int) else value)


def _metadata(artifact: types.Artifact) -> dict[str, Any]:
    """Properties and custom properties in one, as TFX has them there."""
    declared = artifact.artifact_type.properties
    found = {key: _plain(value) for key, value in artifact.mlmd_artifact.properties.items()}
    for key, value in artifact.mlmd_artifact.custom_properties.items():
        plain = artifact.get_json_value_custom_property(key) if value.HasField("struct_value") else _plain(value)
        found[f"{artifact_lib.CUSTOM_PROPERTIES_PREFIX}{key}" if key in declared else key] = plain
    return {key: value for key, value in found.items() if value is not None}  # Kubeflow refuses null


def _plain(value: metadata_store_pb2.Value) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind in ("int_value", "double_value", "string_value", "bool_value") else None


def _with_addresses(value: Any, addresses: Mapping[str, str]) -> Any:
    """A value with addresses in place of paths of this container, which mean nothing elsewhere."""
    if isinstance(value, str):
        for path, address in addresses.items():
            if value == path or value.startswith(f"{path}/"):
                return address + value[len(path) :]
    return value
