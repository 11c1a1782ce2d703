"""Imitates Kubeflow Pipelines: runs each step's container command as a process.

It does what KFP's driver and launcher do, according to their sources of 2.15: resolves
parameters and artifacts, uses its cache, passes an ExecutorInput with its quirks (input
artifacts without their schema, an output for the log, metadata as the metadata store
returns it), replaces placeholders, copies inputs from and outputs to the object store,
and records the results in a real ML Metadata store. There are no containers: a step
sees this machine. So the folder of a claim is at its mount path, and local copies are
in a folder of the run instead of KFP's /gcs, /s3 and /minio.
"""

import copy
import hashlib
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format, struct_pb2
from metadata_service import PIPELINE, RUN, MetadataService
from ml_metadata.proto import metadata_store_pb2 as pb

Document = dict[str, Any]

STEP_SECONDS = 280
SCHEMES = ("gs", "s3", "minio")


class StepError(Exception):
    """A step failed.

    Attributes:
      step: Its name.
      log: What it printed.
    """

    def __init__(self, step: str, log: str):
        super().__init__(f"{step} failed:\n{log[-6000:]}")
        self.step, self.log = step, log


@dataclass
class Run:
    """A finished run.

    Attributes:
      steps: Names of the steps that ran, in their order.
      cached: Names of steps whose outputs come from an earlier run.
      outputs: Step -> name -> its output artifact, a RuntimeArtifact.
      parameters: Step -> its output parameters.
      inputs: Step -> its ExecutorInput.
      logs: Step -> what it printed.
    """

    steps: list[str] = field(default_factory=list)
    cached: list[str] = field(default_factory=list)
    outputs: dict[str, dict[str, Document]] = field(default_factory=dict)
    parameters: dict[str, Document] = field(default_factory=dict)
    inputs: dict[str, Document] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)


@dataclass
class KubeflowPipelines:
    """An installation of Kubeflow Pipelines.

    Attributes:
      folder: Folder of its object store and of the files in its steps' containers.
      metadata: Its metadata store.
      environment: Environment variables of every step.
      output_file: Where steps write their ExecutorOutput: `task-root`, as since 2.15,
        or `tmp`, as before.
      on_start: Called with the name of each step and its process.
    """

    folder: Path
    metadata: MetadataService
    environment: Mapping[str, str] = field(default_factory=dict)
    output_file: str = "task-root"
    on_start: Callable[[str, subprocess.Popen[bytes]], None] = lambda step, process: None
    _cache: dict[str, tuple[dict[str, Document], Document]] = field(default_factory=dict)

    def run(
        self, package: str, parameters: Mapping[str, Any], pipeline_root: str, enable_caching: bool | None = None
    ) -> Run:
        """Runs a compiled pipeline.

        Args:
          package: Its two documents, YAML.
          parameters: Values of its parameters.
          pipeline_root: Address that artifacts are written under.
          enable_caching: As in `kfp`: None for the setting of each step.

        Raises:
          StepError: A step failed.
          ValueError: The backend does not accept the pipeline.
        """
        pipeline, platform = yaml.safe_load_all(package)
        executors = pipeline["deploymentSpec"]["executors"]
        of_platform = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        if unknown := set(of_platform) - set(executors):
            raise ValueError(f"the platform spec speaks of executors that are not there: {unknown}")
        run_id = str(uuid.uuid4())
        name = pipeline["pipelineInfo"]["name"]
        execution = _Execution(
            self,
            pipeline,
            f"{pipeline_root}/{name}/{run_id}",
            [self.metadata.context(PIPELINE, name), self.metadata.context(RUN, run_id)],
            enable_caching,
            Run(),
        )
        declared = pipeline["root"].get("inputDefinitions", {}).get("parameters", {})
        if unknown := set(parameters) - set(declared):
            raise ValueError(f"the pipeline has no parameters {unknown}")
        execution.run_dag(pipeline["root"], _with_defaults(parameters, declared))
        return execution.result

    def stored(self, uri: str) -> Path:
        """Returns the path of an address in the object store."""
        scheme, _, rest = uri.partition("://")
        return self.folder / "store" / scheme / rest

    def local(self, pod: str, uri: str) -> Path:
        """Returns the path where a step reads and writes the content of an address."""
        scheme, _, rest = uri.partition("://")
        if scheme not in SCHEMES:
            raise ValueError(f"no object store has {uri}")
        return self.folder / "pods" / pod / {"gs": "gcs"}.get(scheme, scheme) / rest


@dataclass
class _Execution:
    """A run in progress."""

    backend: KubeflowPipelines
    pipeline: Document
    root: str
    contexts: list[int]
    enable_caching: bool | None
    result: Run

    def run_dag(self, component: Document, parameters: Mapping[str, Any]) -> dict[str, Document]:
        """Runs a pipeline's tasks in dependency order; returns output artifacts."""
        tasks = component["dag"]["tasks"]
        artifacts: dict[str, dict[str, Document]] = {}
        produced: dict[str, Document] = {}
        waiting = dict(tasks)
        while waiting:
            ready = [name for name, task in waiting.items() if _needs(task) <= set(artifacts)]
            if not ready:
                raise ValueError(f"these wait for each other, or for what is not there: {sorted(waiting)}")
            for name in sorted(ready):
                task = waiting.pop(name)
                inner = self.pipeline["components"][task["componentRef"]["name"]]
                task_inputs = _resolve_inputs(task, inner, parameters, artifacts, produced)
                artifacts[name], produced[name] = self._run_task(name, task, inner, task_inputs)
        wanted = component["dag"].get("outputs", {}).get("artifacts", {})
        return {
            name: artifacts[selector["producerSubtask"]][selector["outputArtifactKey"]]
            for name, selectors in wanted.items()
            for selector in selectors["artifactSelectors"]
        }

    def _run_task(
        self, name: str, task: Document, component: Document, task_inputs: Document
    ) -> tuple[dict[str, Document], Document]:
        if "dag" in component:
            return self.run_dag(component, task_inputs["parameterValues"]), {}
        executor = self.pipeline["deploymentSpec"]["executors"][component["executorLabel"]]
        if "importer" in executor:
            return self._import(component, executor["importer"], task_inputs), {}
        if set(executor) != {"container"}:
            raise ValueError(f"{name}: the backend has no executor of kind {sorted(executor)}")
        key = _make_cache_key(task_inputs, component, executor["container"])
        caches = task.get("cachingOptions", {}).get("enableCache", False)
        caches = caches if self.enable_caching is None else self.enable_caching
        self.result.steps.append(name)
        if caches and key in self.backend._cache:
            self.result.cached.append(name)
            self.result.outputs[name], self.result.parameters[name] = self.backend._cache[key]
            return self.backend._cache[key]
        done = self._run_container(name, component, executor["container"], task_inputs)
        self.backend._cache[key] = done
        self.result.outputs[name], self.result.parameters[name] = done
        return done

    def _import(self, component: Document, importer: Document, task_inputs: Document) -> dict[str, Document]:
        address = importer["artifactUri"]
        # Not an output of another task: the real backend looks it up among the
        # parameters of the enclosing pipeline.
        uri = address["constant"] if "constant" in address else task_inputs["parameterValues"][address["runtimeParameter"]]
        (name,) = component["outputDefinitions"]["artifacts"]
        return {name: self._recorded(name, importer["typeSchema"], {"uri": uri, "metadata": {}}, component)}

    def _run_container(
        self, name: str, component: Document, container: Document, task_inputs: Document
    ) -> tuple[dict[str, Document], Document]:
        pod = f"{name.lower()}-{uuid.uuid4().hex[:8]}"
        task_root = f"{self.root}/{name}/{uuid.uuid4()}"
        outputs = component.get("outputDefinitions", {})
        parts = self.backend.folder / "pods" / pod
        artifacts = {
            key: {"name": key, "uri": f"{task_root}/{key}", "type": definition["artifactType"], "metadata": {}}
            for key, definition in outputs.get("artifacts", {}).items()
        }
        log = {"name": "executor-logs", "uri": f"{task_root}/executor-logs", "type": {"schemaTitle": "system.Artifact"}}
        after = self.backend.local(pod, task_root) / "output_metadata.json"
        output_path = after if self.backend.output_file == "task-root" else parts / "tmp/kfp_outputs/output_metadata.json"
        executor_input = {
            "inputs": {
                "parameterValues": task_inputs["parameterValues"],
                "artifacts": {key: {"artifacts": [artifact]} for key, artifact in task_inputs["artifacts"].items()},
            },
            "outputs": {
                "artifacts": {
                    key: {"artifacts": [artifact]} for key, artifact in {**artifacts, "executor-logs": log}.items()
                },
                "parameters": {key: {"outputFile": str(parts / "outputs" / key)} for key in outputs.get("parameters", {})},
                "outputFile": str(output_path),
            },
        }
        self.result.inputs[name] = copy.deepcopy(executor_input)
        for artifact in task_inputs["artifacts"].values():
            if self.backend.stored(artifact["uri"]).is_dir():
                here = self.backend.local(pod, artifact["uri"])
                shutil.copytree(self.backend.stored(artifact["uri"]), here, dirs_exist_ok=True)  # inputs may share it
        for artifact in artifacts.values():
            self.backend.local(pod, artifact["uri"]).parent.mkdir(parents=True, exist_ok=True)
        placeholders = {"{{$}}": json.dumps(_as_go_writes(executor_input))}
        for kind in ("inputs", "outputs"):
            for key, listed in executor_input[kind]["artifacts"].items():
                uri = listed["artifacts"][0]["uri"]
                placeholders[f"{{{{$.{kind}.artifacts['{key}'].uri}}}}"] = uri
                placeholders[f"{{{{$.{kind}.artifacts['{key}'].path}}}}"] = str(self.backend.local(pod, uri))
        words = [_replace_placeholders(word, placeholders) for word in (*container["command"], *container["args"])]
        self.result.logs[name] = self._process(name, words, pod)
        output = json.loads(output_path.read_text()) if output_path.exists() else {}
        _check_output(output, artifacts)
        recorded = {}
        for key, artifact in artifacts.items():
            output_artifact = output.get("artifacts", {}).get(key, {}).get("artifacts", [{}])[0]
            merged = {
                **artifact,
                "uri": output_artifact.get("uri") or artifact["uri"],
                "metadata": output_artifact.get("metadata", {}),
            }
            if not merged["uri"].startswith(self.root):
                raise ValueError(f"URI {merged['uri']!r} does not have expected bucket prefix {self.root!r}")
            local = self.backend.local(pod, merged["uri"])
            if local.exists():
                shutil.copytree(local, self.backend.stored(merged["uri"]))
            recorded[key] = self._recorded(key, artifact["type"], merged, component)
        return recorded, output.get("parameterValues", {})

    def _process(self, name: str, words: list[str], pod: str) -> str:
        environment = {**os.environ, **self.backend.environment, "KFP_POD_NAME": pod, "KFP_POD_UID": str(uuid.uuid4())}
        log = self.backend.folder / f"{pod}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
            )
            try:
                self.backend.on_start(name, process)
                process.wait(STEP_SECONDS)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        text = log.read_text(errors="replace")
        if process.returncode:
            raise StepError(name, text)
        return text

    def _recorded(self, key: str, kind: Document, artifact: Document, component: Document) -> Document:
        """Puts an artifact into the metadata store; returns the next step's copy."""
        title = kind.get("schemaTitle") or yaml.safe_load(kind["instanceSchema"])["title"]
        stored = pb.Artifact(uri=artifact["uri"])
        for name, value in artifact["metadata"].items():
            _store(stored.custom_properties[name], value)
        stored.custom_properties["display_name"].string_value = key
        stored.custom_properties["store_session_info"].string_value = "{}"
        stored = self.backend.metadata.record(title, stored, self.contexts)
        metadata = {name: _given_back(value) for name, value in stored.custom_properties.items()}
        # Named by its number in the store, and without the schema.
        return {"name": str(stored.id), "uri": stored.uri, "type": {"instanceSchema": ""}, "metadata": metadata}


def _as_go_writes(value: Any) -> Any:
    """Returns a document with integers as Go's protojson writes them: no fraction."""
    if isinstance(value, dict):
        return {key: _as_go_writes(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_as_go_writes(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _with_defaults(arguments: Mapping[str, Any], declared: Mapping[str, Document]) -> Document:
    values = {}
    for name, parameter in declared.items():
        if name in arguments:
            values[name] = arguments[name]
        elif "defaultValue" in parameter:
            values[name] = parameter["defaultValue"]
        else:
            raise ValueError(f"parameter {name} is not given, and has no default")
    return values


def _needs(task: Document) -> set[str]:
    inputs = task.get("inputs", {})
    needed = set(task.get("dependentTasks", ()))
    for artifact in inputs.get("artifacts", {}).values():
        needed |= {artifact["taskOutputArtifact"]["producerTask"]} if "taskOutputArtifact" in artifact else set()
    for parameter in inputs.get("parameters", {}).values():
        needed |= {parameter["taskOutputParameter"]["producerTask"]} if "taskOutputParameter" in parameter else set()
    return needed


def _resolve_inputs(
    task: Document,
    component: Document,
    parameters: Mapping[str, Any],
    artifacts: Mapping[str, Mapping[str, Document]],
    produced: Mapping[str, Mapping[str, Any]],
) -> Document:
    """Returns a task's inputs: `{"parameterValues": ..., "artifacts": ...}`."""
    values = {}
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        if "runtimeValue" in source:
            values[name] = source["runtimeValue"]["constant"]
        elif "componentInputParameter" in source:
            values[name] = parameters[source["componentInputParameter"]]
        else:
            output = source["taskOutputParameter"]
            values[name] = produced[output["producerTask"]][output["outputParameterKey"]]
    declared = component.get("inputDefinitions", {}).get("parameters", {})
    input_artifacts = {}
    for name, source in task.get("inputs", {}).get("artifacts", {}).items():
        output = source["taskOutputArtifact"]
        input_artifacts[name] = artifacts[output["producerTask"]][output["outputArtifactKey"]]
    missing = set(component.get("inputDefinitions", {}).get("artifacts", {})) - set(input_artifacts)
    if missing:
        raise ValueError(f"input artifacts are not given: {missing}")
    return {"parameterValues": _with_defaults(values, declared), "artifacts": input_artifacts}


def _make_cache_key(task_inputs: Document, component: Document, container: Document) -> str:
    """Returns KFP's cache key of an execution.

    It has names of artifacts, parameters, interface, command and image.
    """
    names = {name: artifact["name"] for name, artifact in task_inputs["artifacts"].items()}
    outputs = component.get("outputDefinitions", {})
    parts = [names, task_inputs["parameterValues"], outputs, container["command"], container["args"], container["image"]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _replace_placeholders(word: str, placeholders: Mapping[str, str]) -> str:
    for placeholder, value in placeholders.items():
        word = word.replace(placeholder, value)
    return word


def _check_output(output: Document, artifacts: Mapping[str, Document]) -> None:
    """Checks an ExecutorOutput as a strict reader does."""
    if unknown := set(output) - {"parameterValues", "artifacts"}:
        raise ValueError(f"ExecutorOutput has no fields {unknown}")
    for name, listed in output.get("artifacts", {}).items():
        if name not in artifacts:
            raise ValueError(f"the step has no output artifact {name}")
        for artifact in listed["artifacts"]:
            if unknown := set(artifact) - {"name", "uri", "type", "metadata"}:
                raise ValueError(f"an artifact of ExecutorOutput has no fields {unknown}")
            json_format.ParseDict(artifact.get("metadata", {}), struct_pb2.Struct())


def _store(place: pb.Value, value: Any) -> None:
    """Converts a metadata value as KFP's launcher stores it."""
    if isinstance(value, bool):
        place.int_value = int(value)
    elif isinstance(value, int | float):
        place.double_value = float(value)
    elif isinstance(value, str):
        place.string_value = value
    elif isinstance(value, list | dict):
        json_format.ParseDict({"list" if isinstance(value, list) else "struct": value}, place.struct_value)
    else:
        raise ValueError(f"unknown/unsupported value type {type(value)}")


def _given_back(value: pb.Value) -> Any:
    kind = value.WhichOneof("value")
    if kind == "struct_value":
        return json_format.MessageToDict(value.struct_value)
    return float(value.int_value) if kind == "int_value" else getattr(value, kind)
