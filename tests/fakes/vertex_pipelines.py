"""Runs pipeline jobs as Vertex AI Pipelines does, with a process for each task.

It does what is documented of the service, and what TFX's entrypoint and its tests
expect, for schema 2.0.0. It gives parameters their values. It passes an ExecutorInput
to each task, with artifact names like those of the managed metadata store. It runs the
driver in a container's lifecycle first, retries tasks by their policies (but at once),
and passes on the outputs of tasks. There are no containers: a task sees this machine,
and addresses of buckets are replaced by others that this machine can reach.

Sources: https://cloud.google.com/vertex-ai/docs/pipelines/build-pipeline, the protobufs
  of
kfp-pipeline-spec, and in TFX's `orchestration/kubeflow/v2`:
container/kubeflow_v2_run_executor.py, container/testdata and
file_based_example_gen/driver.py.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forked import ForkedProcess, ForkedProcesses
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2 as pb
from vertex_admission import Document
from vertex_metadata import ArtifactStore

TASK_SECONDS = 280.0
METADATA_BYTES = 200_000  # of an artifact: https://cloud.google.com/vertex-ai/docs/reference/rest (Artifact.metadata)
_KINDS = {"INT": "intValue", "DOUBLE": "doubleValue", "STRING": "stringValue"}
_OF_TASKS = {"taskInfo", "inputs", "dependentTasks", "cachingOptions", "componentRef", "retryPolicy"}  # fields


class TaskError(Exception):
    """A task failed.

    Attributes:
      task: Name of the task.
      log: Output of the task.
    """

    def __init__(self, task: str, log: str):
        super().__init__(f"{task} failed:\n{log[-6000:]}")
        self.task, self.log = task, log


@dataclass
class Run:
    """A pipeline job that has ended.

    Attributes:
      tasks: Names of the tasks whose containers ran, in their order.
      outputs: Task -> name -> output artifact, a RuntimeArtifact. Models that a
        resolver has not found are missing.
      parameters: Task -> name -> output parameter, a Value.
      inputs: Task -> its ExecutorInput.
      logs: Task -> output of all of its attempts.
    """

    tasks: list[str] = field(default_factory=list)
    outputs: dict[str, dict[str, Document]] = field(default_factory=dict)
    parameters: dict[str, dict[str, Document]] = field(default_factory=dict)
    inputs: dict[str, Document] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)


@dataclass
class VertexPipelines:
    """The service in one project and location.

    Attributes:
      folder: Folder for the output of tasks.
      places: Beginning of an address -> its replacement, everywhere in a job.
      number: Number of the project.
      location: The location.
      environment: Environment variables of every task, as of its image.
      connected: Task -> arguments of `connected.py`, for tasks that use the service's
        API.
      on_start: Called with the name of each task and its process.
      forked: Starts tasks; None if each is a new process.
      new_processes: Names of tasks that are new processes, as in containers.
      metadata: Artifacts of all runs, which resolvers find.
    """

    folder: Path
    places: Mapping[str, str] = field(default_factory=dict)
    number: str = "123456789012"
    location: str = "us-central1"
    environment: Mapping[str, str] = field(default_factory=dict)
    connected: Mapping[str, list[str]] = field(default_factory=dict)
    on_start: Callable[[str, subprocess.Popen[bytes] | ForkedProcess], None] = lambda task, process: None
    forked: ForkedProcesses | None = None
    new_processes: Collection[str] = ()
    metadata: ArtifactStore = field(default_factory=ArtifactStore)
    _ids: Any = field(default_factory=lambda: itertools.count(10_000_000_000_000_001))

    def run(self, job: Document, job_id: str, earlier: Run | None = None, only: Collection[str] = ()) -> Run:
        """Runs a pipeline job.

        Args:
          job: The PipelineJob, as compiled or as the API returns it.
          job_id: Id of the job.
          earlier: Run whose outputs the other tasks have, as from the cache.
          only: Tasks to run; empty for all.

        Raises:
          TaskError: A task failed.
          ValueError: The service does not accept the job.
        """
        text = json.dumps(job)
        for place, instead in self.places.items():
            text = text.replace(place, instead)
        job = json.loads(text)
        config = job["runtimeConfig"]
        root = f"{config['gcsOutputDirectory'].rstrip('/')}/{self.number}/{job_id}"
        execution = _Execution(self, _pipeline_spec(job["pipelineSpec"]), root, config.get("parameters", {}), Run())
        execution.run(earlier, only)
        return execution.result

    def new_name(self) -> str:
        """Returns the name of a new artifact."""
        return f"projects/{self.number}/locations/{self.location}/metadataStores/default/artifacts/{next(self._ids)}"


def _pipeline_spec(document: Document) -> Document:
    """Reads a pipeline by its own types, which refuse unknown fields."""
    spec: Document = json_format.MessageToDict(json_format.ParseDict(document, pb.PipelineSpec()))
    if spec["schemaVersion"] != "2.0.0":
        raise ValueError(f"schema {spec['schemaVersion']} is not that of TFX's pipelines on Vertex AI")
    deployment = json_format.ParseDict(spec["deploymentSpec"], pb.PipelineDeploymentConfig())
    return {**spec, "deploymentSpec": json_format.MessageToDict(deployment)}


@dataclass
class _Execution:
    """A run in progress."""

    service: VertexPipelines
    spec: Document
    root: str
    parameters: Mapping[str, Document]
    result: Run

    def run(self, earlier: Run | None, only: Collection[str]) -> None:
        """Runs the tasks in the order of their dependencies."""
        waiting = dict(self.spec["root"]["dag"]["tasks"])
        if only:
            self.result.outputs.update(earlier.outputs if earlier else {})
            self.result.parameters.update(earlier.parameters if earlier else {})
            waiting = {name: task for name, task in waiting.items() if name in only}
        while waiting:
            ready = [name for name, task in waiting.items() if _needs(task) <= set(self.result.outputs)]
            if not ready:
                raise ValueError(f"these wait for each other, or for what is not there: {sorted(waiting)}")
            name = min(ready)
            self.result.parameters[name] = {}
            self.result.outputs[name] = self._task(name, waiting.pop(name))

    def _task(self, name: str, task: Document) -> dict[str, Document]:
        if unknown := set(task) - _OF_TASKS:
            raise ValueError(f"{name}: the fake does not support {sorted(unknown)}")
        component = self.spec["components"][task["componentRef"]["name"]]
        executor = self.spec["deploymentSpec"]["executors"][component["executorLabel"]]
        if "resolver" in executor:
            return self.service.metadata.resolve(executor["resolver"], self._artifacts(name, task, component))
        parameters, artifacts = self._parameters(name, task, component), self._artifacts(name, task, component)
        if "importer" in executor:
            outputs = self._imported(executor["importer"], parameters, component)
            return self._kept(outputs)
        attempts = 1 + int(task.get("retryPolicy", {}).get("maxRetryCount", 0))
        return self._kept(self._container(name, component, executor["container"], parameters, artifacts, attempts))

    def _kept(self, outputs: dict[str, Document]) -> dict[str, Document]:
        """Adds the outputs of a task that has succeeded to the metadata store."""
        for artifact in outputs.values():
            self.service.metadata.add(artifact)
        return outputs

    def _parameters(self, name: str, task: Document, component: Document) -> dict[str, Document]:
        """Returns a task's parameters, each of the type that the component declares."""
        values = {}
        for key, source in task.get("inputs", {}).get("parameters", {}).items():
            if "taskOutputParameter" in source:
                output = source["taskOutputParameter"]
                value = self.result.parameters[output["producerTask"]][output["outputParameterKey"]]
            elif "componentInputParameter" in source:
                value = self.parameters[source["componentInputParameter"]]
            else:
                value = source["runtimeValue"]["constantValue"]
            values[key] = value
        declared = component.get("inputDefinitions", {}).get("parameters", {})
        kinds = {key: {_KINDS[parameter["type"]]} for key, parameter in declared.items()}
        if kinds != {key: set(value) for key, value in values.items()}:
            raise ValueError(f"{name}: its parameters are {values}, and its component declares {declared}")
        return values

    def _artifacts(self, name: str, task: Document, component: Document) -> dict[str, Document]:
        """Returns a task's input artifacts; an input that was not found has none."""
        artifacts = {}
        for key, source in task.get("inputs", {}).get("artifacts", {}).items():
            output = source["taskOutputArtifact"]
            artifacts[key] = self.result.outputs[output["producerTask"]].get(output["outputArtifactKey"])
        declared = component.get("inputDefinitions", {}).get("artifacts", {})
        if set(artifacts) != set(declared):
            raise ValueError(f"{name}: its artifacts are {sorted(artifacts)}, and its component declares {sorted(declared)}")
        return {key: artifact for key, artifact in artifacts.items() if artifact}

    def _imported(self, importer: Document, parameters: Mapping[str, Document], component: Document) -> dict[str, Document]:
        address = importer["artifactUri"]
        if "runtimeParameter" in address:
            uri = parameters[address["runtimeParameter"]]["stringValue"]
        else:
            uri = address["constantValue"]["stringValue"]
        (key,) = component["outputDefinitions"]["artifacts"]
        metadata = {"metadata": importer["metadata"]} if "metadata" in importer else {}
        return {key: {"name": self.service.new_name(), "uri": uri, "type": importer["typeSchema"], **metadata}}

    def _container(
        self, name: str, component: Document, container: Document, parameters: Document, artifacts: Document, attempts: int
    ) -> dict[str, Document]:
        # A task's id is a signed 64-bit number.
        task_root = f"{self.root}/{name}_{int.from_bytes(os.urandom(8), 'big', signed=True)}"
        defined = component.get("outputDefinitions", {})
        outputs = {
            key: {"name": self.service.new_name(), "uri": f"{task_root}/{key}", "type": definition["artifactType"]}
            for key, definition in defined.get("artifacts", {}).items()
        }
        output_file = f"{task_root}/executor_output.json"
        # A bucket has no folders to create before a write.
        for artifact in outputs.values():
            _path(artifact["uri"]).mkdir(parents=True)
        driver = container.get("lifecycle", {}).get("preCacheCheck")
        inputs = {"parameters": parameters, "artifacts": {key: {"artifacts": [one]} for key, one in artifacts.items()}}

        def executor_input() -> Document:
            places = {key: {"outputFile": f"{task_root}/{key}"} for key in defined.get("parameters", {})}
            declared = {"artifacts": {key: {"artifacts": [one]} for key, one in outputs.items()}, "parameters": places}
            return {"inputs": inputs, "outputs": {**declared, "outputFile": output_file}}

        self.result.tasks.append(name)
        self.result.logs[name] = ""
        if driver:
            self._process(name, [*driver["command"], *driver["args"]], container, executor_input())
            # Its parameters are only for readers of the file. The service updates the
            # artifacts before the executor starts.
            outputs = _read_output(name, _path(output_file), outputs)[0]
        self.result.inputs[name] = executor_input()
        for attempts_left in reversed(range(attempts)):
            try:
                self._process(name, [*container["command"], *container["args"]], container, executor_input())
                break
            except TaskError:
                if not attempts_left:
                    raise
        outputs, self.result.parameters[name] = _read_output(name, _path(output_file), outputs)
        return outputs

    def _process(self, name: str, command: list[str], container: Document, executor_input: Document) -> None:
        """Runs a task's container until it ends."""
        message = json_format.ParseDict(executor_input, pb.ExecutorInput())
        command = [argument.replace("{{$}}", json_format.MessageToJson(message, indent=None)) for argument in command]
        if unknown := [argument for argument in command if re.search(r"\{\{\$\.", argument)]:
            raise ValueError(f"{name}: the fake has no such placeholders: {unknown}")
        is_python = command[0] == "python"
        if is_python:
            command[:1] = [
                sys.executable,
                str(Path(__file__).with_name("connected.py")),
                *self.service.connected.get(name, ()),
            ]
        environment = {**os.environ, **self.service.environment}
        environment |= {variable["name"]: variable["value"] for variable in container.get("env", ())}
        log = self.service.folder / f"{name}-{uuid.uuid4().hex[:8]}.log"
        with log.open("wb") as stream:
            process: subprocess.Popen[bytes] | ForkedProcess
            if is_python and self.service.forked and name not in self.service.new_processes:
                process = self.service.forked.start(command[1:], environment, self.service.folder, stream, ends_session=True)
            else:
                process = subprocess.Popen(
                    command,
                    env=environment,
                    cwd=self.service.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            try:
                self.service.on_start(name, process)
                process.wait(TASK_SECONDS)
            finally:
                # Nothing in a container outlives its first process.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        text = log.read_text(errors="replace")
        self.result.logs[name] += text
        if process.returncode:
            raise TaskError(name, text)


def _needs(task: Document) -> set[str]:
    """Returns the tasks that a task depends on."""
    inputs = task.get("inputs", {})
    needed = set(task.get("dependentTasks", ()))
    needed |= {one["taskOutputArtifact"]["producerTask"] for one in inputs.get("artifacts", {}).values()}
    parameters = inputs.get("parameters", {}).values()
    return needed | {one["taskOutputParameter"]["producerTask"] for one in parameters if "taskOutputParameter" in one}


def _read_output(name: str, file: Path, outputs: Mapping[str, Document]) -> tuple[dict[str, Document], dict[str, Document]]:
    """Reads a task's ExecutorOutput: its changed artifacts, and its parameters."""
    output: Document = json_format.MessageToDict(json_format.Parse(file.read_text(), pb.ExecutorOutput()))
    artifacts = dict(outputs)
    for key, listed in output.get("artifacts", {}).items():
        (reported,) = listed["artifacts"]
        if key not in outputs or reported.get("name") not in (None, outputs[key]["name"]):
            raise ValueError(f"{name}: it has no output {key} of the name {reported.get('name')}")
        if len(json.dumps(reported.get("metadata", {}))) > METADATA_BYTES:
            raise ValueError(f"{name}: the metadata of {key} are more than an artifact can have")
        artifacts[key] = {**outputs[key], **reported}
    values = {key: _value(value) for key, value in output.get("parameterValues", {}).items()}
    return artifacts, {**values, **output.get("parameters", {})}


def _value(value: Any) -> Document:
    """Returns a plain value as a Value of schema 2.0.0."""
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(int(value))} if float(value).is_integer() else {"doubleValue": value}


def _path(address: str) -> Path:
    return Path(address.removeprefix("file://"))
