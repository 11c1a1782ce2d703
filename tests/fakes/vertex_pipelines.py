"""Runs pipeline jobs as Vertex AI Pipelines does, with a process for each task.

It does what TFX's entrypoint expects, for schema 2.0.0: drivers run first, tasks are
retried, and resolvers find nothing. There are no containers: a task sees this machine,
and addresses of buckets are replaced by others that this machine can reach.
"""

import itertools
import json
import os
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from forked import ForkedProcesses, run_container
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2 as pb
from kubeflow_pipelines import Document, Run, StepError, in_order, resolve

_STORE = "projects/1/locations/l/metadataStores/default"
_SCHEDULE_TIME = "{{$.pipeline_job_schedule_time_utc}}"


@dataclass
class VertexPipelines:
    """The service; `places` are replaced everywhere in a job, as a bucket by a folder.

    `connected` are the arguments of `connected.py` for tasks that use the API, and
    `new_processes` the tasks that are no forks, as in containers.
    """

    folder: Path
    places: Mapping[str, str]
    environment: Mapping[str, str]
    connected: Mapping[str, list[str]]
    forked: ForkedProcesses | None = None
    new_processes: Collection[str] = ()

    def run(self, job: Document, job_id: str, only: Collection[str] = (), scheduled_at: str = "") -> Run:
        """Runs a PipelineJob, or only some tasks, which need no other."""
        text = json.dumps(job)
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        for place, instead in {**self.places, _SCHEDULE_TIME: scheduled_at or now}.items():
            text = text.replace(place, instead)
        job = json.loads(text)
        config, document = job["runtimeConfig"], job["pipelineSpec"]
        spec = json_format.MessageToDict(json_format.ParseDict(document, pb.PipelineSpec()))
        deployment = json_format.ParseDict(document["deploymentSpec"], pb.PipelineDeploymentConfig())
        executors = json_format.MessageToDict(deployment)["executors"]
        root = f"{config['gcsOutputDirectory'].rstrip('/')}/123456789012/{job_id}"
        execution = _Execution(self, spec, executors, root, config.get("parameters", {}), Run())
        execution.run(only)
        return execution.result


@dataclass
class _Execution:
    """A run in progress."""

    service: VertexPipelines
    spec: Document
    executors: Document
    root: str
    parameters: Mapping[str, Document]
    result: Run
    ids: Any = field(default_factory=lambda: itertools.count(10_000_000_000_000_001))

    def run(self, only: Collection[str]) -> None:
        """Runs the tasks in the order of their dependencies."""
        tasks = self.spec["root"]["dag"]["tasks"]
        for name, task in in_order({name: task for name, task in tasks.items() if not only or name in only}):
            self.result.parameters[name] = {}
            self.result.outputs[name] = self._task(name, task)

    def _task(self, name: str, task: Document) -> dict[str, Document]:
        component = self.spec["components"][task["componentRef"]["name"]]
        executor = self.executors[component["executorLabel"]]
        if "resolver" in executor:
            return {}
        parameters, artifacts = resolve(task, self.parameters, self.result.outputs, self.result.parameters)
        attempts = 1 + task.get("retryPolicy", {}).get("maxRetryCount", 0)
        found = {key: {"artifacts": [artifact]} for key, artifact in artifacts.items() if artifact}
        read = {"parameters": parameters, "artifacts": found}
        return self._container(name, component.get("outputDefinitions", {}), executor["container"], read, attempts)

    def _container(
        self, name: str, defined: Document, container: Document, inputs: Document, attempts: int
    ) -> dict[str, Document]:
        # A task's id is a signed 64-bit number.
        task_root = f"{self.root}/{name}_{int.from_bytes(os.urandom(8), 'big', signed=True)}"
        output_file = f"{task_root}/executor_output.json"
        places = {key: {"outputFile": f"{task_root}/{key}"} for key in defined.get("parameters", {})}
        outputs = {
            key: {
                "name": f"{_STORE}/artifacts/{next(self.ids)}",
                "uri": f"{task_root}/{key}",
                "type": definition["artifactType"],
            }
            for key, definition in defined.get("artifacts", {}).items()
        }
        for artifact in outputs.values():  # a bucket has no folders to create before a write
            _path(artifact["uri"]).mkdir(parents=True)

        def run(command: list[str]) -> None:
            listed = {key: {"artifacts": [one]} for key, one in outputs.items()}
            declared = {"artifacts": listed, "parameters": places, "outputFile": output_file}
            self._process(name, command, container, {"inputs": inputs, "outputs": declared})

        self.result.steps.append(name)
        self.result.logs[name] = ""
        if driver := container.get("lifecycle", {}).get("preCacheCheck"):
            run([*driver["command"], *driver["args"]])
            outputs = _read_output(_path(output_file), outputs)[0]  # before the executor starts
        for attempts_left in reversed(range(attempts)):
            try:
                run([*container["command"], *container["args"]])
                break
            except StepError:
                if not attempts_left:
                    raise
        outputs, self.result.parameters[name] = _read_output(_path(output_file), outputs)
        return outputs

    def _process(self, name: str, command: list[str], container: Document, executor_input: Document) -> None:
        """Runs a task's container until it ends."""
        service = self.service
        message = json_format.MessageToJson(json_format.ParseDict(executor_input, pb.ExecutorInput()), indent=None)
        python, *arguments = [argument.replace("{{$}}", message) for argument in command]
        words = [python, str(Path(__file__).with_name("connected.py")), *service.connected.get(name, ()), *arguments]
        variables = {variable["name"]: variable["value"] for variable in container.get("env", ())}
        forked = None if name in service.new_processes else service.forked
        log = service.folder / f"{name}-{uuid.uuid4().hex[:8]}.log"
        code, text = run_container(words, {**service.environment, **variables}, log, forked)
        self.result.logs[name] += text
        if code:
            raise StepError(name, text)


def _read_output(file: Path, outputs: Mapping[str, Document]) -> tuple[dict[str, Document], dict[str, Document]]:
    """Reads a task's ExecutorOutput: its changed artifacts, and its parameters."""
    output: Document = json_format.MessageToDict(json_format.Parse(file.read_text(), pb.ExecutorOutput()))
    artifacts = {key: listed["artifacts"][0] for key, listed in output.get("artifacts", {}).items()}
    changed = {key: {**artifact, **artifacts.get(key, {})} for key, artifact in outputs.items()}
    return changed, output.get("parameters", {})


def _path(address: str) -> Path:
    return Path(address.removeprefix("file://"))
