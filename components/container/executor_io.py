"""Reads what Kubeflow Pipelines passes to a step, and writes what the step returns.

Converts KFP's ExecutorInput into the arguments of a TFX executor, and its output
artifacts into KFP's ExecutorOutput. Both documents are JSON:
https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1/pipeline_spec.proto They
are not parsed as those protobufs: later backends add fields that older protobufs do not
have. TFX converts each artifact.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx import types
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils

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
      names: Id of an artifact -> its name on Kubeflow.
    """

    inputs: dict[str, list[types.Artifact]]
    outputs: dict[str, list[types.Artifact]]
    exec_properties: dict[str, Any]
    addresses: Mapping[str, str]
    names: Mapping[int, str]


def read(executor_input: Mapping[str, Any], interface: Mapping[str, Any], paths: Mapping[str, str]) -> Execution:
    """Converts an ExecutorInput into the arguments of a TFX executor.

    `interface` is what the backend leaves out: `inputs` and `outputs` have the type of
    each artifact by name, such as `tfx.Model`; `integer` and `double` are the names of
    parameters that are numbers. `paths` is `inputs/NAME` or `outputs/NAME` -> path in
    this container where Kubeflow's launcher has the artifact.
    """
    addresses: dict[str, str] = {}
    names: dict[int, str] = {}
    artifact_types.register()

    def convert(kind: str) -> dict[str, list[types.Artifact]]:
        runtime_artifacts = executor_input.get(kind, {}).get("artifacts", {})
        converted = {}
        # Only those that the component declares: Kubeflow adds an output for the log.
        for name, title in interface[kind].items():
            listed = runtime_artifacts.get(name, {}).get("artifacts", [])
            if not listed:
                continue
            if len(listed) > 1:  # the launcher gives the path of the first only
                raise ConfigurationError(f"{name}: {len(listed)} artifacts are given; a TFX component takes only one here")
            (runtime,) = listed
            uri = runtime["uri"]
            if uri.startswith(COPIED_SCHEMES):
                uri = paths.get(f"{kind}/{name}", "")
                addresses[uri] = runtime["uri"]
            metadata = {key: _unwrap(value) for key, value in runtime.get("metadata", {}).items() if value is not None}
            document = {
                "name": runtime.get("name", ""),
                "uri": uri,
                "type": {"schemaTitle": title},
                "metadata": {key: value for key, value in metadata.items() if key not in _KUBEFLOW_KEYS},
            }
            converted[name] = json_format.ParseDict({"artifacts": [document]}, pipeline_spec_pb2.ArtifactList())
        return dict(kubeflow_v2_entrypoint_utils.parse_raw_artifact_dict(converted, names))

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
        names=names,
    )


def make_executor_output(execution: Execution, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the ExecutorOutput of a step.

    It has what the executor has written into its output artifacts, and the values of
    output `parameters`.
    """
    artifacts = {}
    written = kubeflow_v2_entrypoint_utils.translate_executor_output(execution.outputs, execution.names)
    for name, listed in written.items():
        (runtime,) = json_format.MessageToDict(listed)["artifacts"]
        values = {key: _replace_path(value, execution.addresses) for key, value in runtime.get("metadata", {}).items()}
        metadata = {key: value for key, value in values.items() if value is not None}  # Kubeflow refuses null
        uri = execution.addresses.get(runtime["uri"], runtime["uri"])
        artifacts[name] = {"artifacts": [{"name": runtime.get("name", ""), "uri": uri, "metadata": metadata}]}
    return {"artifacts": artifacts, "parameterValues": dict(parameters or {})}


def _unwrap(value: Any) -> Any:
    """Returns a value of metadata without the wrapper of Kubeflow's metadata store."""
    if isinstance(value, dict) and list(value) in (["list"], ["struct"]):
        return next(iter(value.values()))
    return value


def _replace_path(value: Any, addresses: Mapping[str, str]) -> Any:
    """Replaces a path of this container, which is unknown elsewhere, by its address."""
    if isinstance(value, str):
        for path, address in addresses.items():
            if value == path or value.startswith(f"{path}/"):
                return address + value[len(path) :]
    return value
