"""Imitates Kubeflow Pipelines: runs a compiled pipeline step by step.

It does what KFP's driver does, according to its sources of 2.15 (and of 2.17, where it
tells for which time a run was scheduled): resolves parameters
and artifacts, uses its cache, passes an ExecutorInput with its quirks (input artifacts
without their schema, an output for the log, metadata as the metadata store returns it),
replaces placeholders, and records the results in a real ML Metadata store. Containers
are run by an object of their own, `Steps`: as processes of this machine
(`step_processes`), or as pods of a real cluster (`step_pods`).
"""

import hashlib
import json
import posixpath
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from kfp_api import KfpApi
from metadata_service import PIPELINE, RUN, MetadataService
from ml_metadata.proto import metadata_store_pb2 as pb

Document = dict[str, Any]

_RUN_ID, _SCHEDULE_TIME = "{{$.pipeline_job_uuid}}", "{{$.pipeline_job_schedule_time_utc}}"
_AT_END = "ALL_UPSTREAM_TASKS_COMPLETED"
SCHEMES = {"gs": "gcs", "s3": "s3", "minio": "minio"}  # -> a folder of each container


class StepError(Exception):
    """A step failed.

    Attributes:
      step: Its name.
      log: What it printed.
    """

    def __init__(self, step: str, log: str):
        super().__init__(f"{step} failed:\n{log[-6000:]}")
        self.step, self.log = step, log


@dataclass(frozen=True)
class Step:
    """A step, as the driver hands it to KFP's launcher in a container.

    Attributes:
      name: Its task's name.
      pod: Name of its pod.
      words: Its command, with all placeholders replaced.
      inputs: Addresses of its input artifacts.
      outputs: Addresses of its output artifacts.
      output_file: Path of its ExecutorOutput in the container.
      container: Its PipelineContainerSpec.
      config: Its KubernetesExecutorConfig.
      retries: Its retryPolicy.
    """

    name: str
    pod: str
    words: list[str]
    inputs: list[str]
    outputs: list[str]
    output_file: str
    container: Document
    config: Document
    retries: Document


class Steps(Protocol):
    """Runs containers."""

    def root(self, pod: str) -> str:
        """Returns the folder of a container that has `gcs`, `s3`, `minio` and `tmp`."""

    def run(self, step: Step) -> tuple[str, Document]:
        """Runs a step; returns what it printed, and its ExecutorOutput.

        Copies its inputs from the object store, and its outputs to it.

        Raises:
          StepError: It failed.
        """


@dataclass
class Run:
    """A finished run.

    Attributes:
      steps: Names of the steps that ran, in their order.
      cached: Names of steps whose outputs come from an earlier run.
      outputs: Step -> name -> its output artifact, a RuntimeArtifact.
      parameters: Step -> its output parameters.
      logs: Step -> what it printed.
    """

    steps: list[str] = field(default_factory=list)
    cached: list[str] = field(default_factory=list)
    outputs: dict[str, dict[str, Document]] = field(default_factory=dict)
    parameters: dict[str, Document] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)


@dataclass
class KubeflowPipelines:
    """An installation of Kubeflow Pipelines.

    Attributes:
      steps: Runs its steps.
      metadata: Its metadata store.
      output_file: Where steps write their ExecutorOutput: `task-root`, as since 2.15,
        or `tmp`, as before.
      api: Its API server, which knows the states of runs and of their steps.
      cache: Key of an execution -> its output artifacts and parameters.
    """

    steps: Steps
    metadata: MetadataService
    output_file: str = "task-root"
    api: KfpApi = field(default_factory=KfpApi)
    cache: dict[str, tuple[dict[str, Document], Document]] = field(default_factory=dict)

    def run(
        self,
        package: str,
        parameters: Mapping[str, Any],
        pipeline_root: str,
        scheduled_at: str = "",
    ) -> Run:
        """Runs a compiled pipeline.

        Args:
          package: Its two documents, YAML.
          parameters: Values of its parameters.
          pipeline_root: Address that artifacts are written under.
          scheduled_at: For which time a recurring run starts it; by default, now.

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
        self.api.add_run(run_id, package)
        execution = _Execution(
            self,
            run_id,
            {_RUN_ID: run_id, _SCHEDULE_TIME: scheduled_at or datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")},
            pipeline,
            of_platform,
            f"{pipeline_root}/{name}/{run_id}",
            [self.metadata.context(PIPELINE, name), self.metadata.context(RUN, run_id)],
            Run(),
        )
        declared = pipeline["root"].get("inputDefinitions", {}).get("parameters", {})
        if unknown := set(parameters) - set(declared):
            raise ValueError(f"the pipeline has no parameters {unknown}")
        try:
            execution.run_dag(pipeline["root"], _with_defaults(parameters, declared))
        except StepError:
            self.api.set_state(run_id, "FAILED")
            raise
        self.api.set_state(run_id, "SUCCEEDED")
        return execution.result

    def local(self, pod: str, uri: str) -> str:
        """Returns the path where a step reads and writes the content of an address."""
        scheme, _, rest = uri.partition("://")
        if scheme not in SCHEMES:
            raise ValueError(f"no object store has {uri}")
        return posixpath.join(self.steps.root(pod), SCHEMES[scheme], rest)


@dataclass
class _Execution:
    """A run in progress."""

    backend: KubeflowPipelines
    run_id: str
    constants: Mapping[str, str]  # placeholder -> its value
    pipeline: Document
    platform: Document  # label of an executor -> its KubernetesExecutorConfig
    root: str
    contexts: list[int]
    result: Run

    def run_dag(self, component: Document, parameters: Mapping[str, Any]) -> dict[str, Document]:
        """Runs a pipeline's tasks in dependency order; returns output artifacts.

        Then, or once one has failed, those that wait for its end, like Argo's hooks.
        """
        tasks = component["dag"]["tasks"]
        ends = {name: task for name, task in tasks.items() if task.get("triggerPolicy", {}).get("strategy") == _AT_END}
        try:
            return self._run_tasks({name: task for name, task in tasks.items() if name not in ends}, component, parameters)
        finally:
            for name, task in ends.items():
                inner = self.pipeline["components"][task["componentRef"]["name"]]
                self._run_task(name, task, inner, _resolve_inputs(task, inner, parameters, {}, {}, self.constants))

    def _run_tasks(self, tasks: Document, component: Document, parameters: Mapping[str, Any]) -> dict[str, Document]:
        artifacts: dict[str, dict[str, Document]] = {}
        produced: dict[str, Document] = {}
        for name, task in in_order(tasks):
            inner = self.pipeline["components"][task["componentRef"]["name"]]
            task_inputs = _resolve_inputs(task, inner, parameters, artifacts, produced, self.constants)
            try:
                artifacts[name], produced[name] = self._run_task(name, task, inner, task_inputs)
            except StepError:
                self.backend.api.set_state(self.run_id, "RUNNING", {name: "FAILED"})
                raise
            self.backend.api.set_state(self.run_id, "RUNNING", {name: "SUCCEEDED"})
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
        mounts = self.platform.get(component["executorLabel"], {}).get("pvcMount", [])
        claims = sorted({mount["constant"] for mount in mounts})
        pipeline_name = self.pipeline["pipelineInfo"]["name"]
        key = _make_cache_key(pipeline_name, task_inputs, component, executor["container"], claims)
        caches = task.get("cachingOptions", {}).get("enableCache", False)
        self.result.steps.append(name)
        if caches and key in self.backend.cache:
            self.result.cached.append(name)
            self.backend.metadata.record_step(name, "CACHED", self.contexts)
            self.result.outputs[name], self.result.parameters[name] = self.backend.cache[key]
            return self.backend.cache[key]
        self.backend.metadata.record_step(name, "RUNNING", self.contexts)
        try:
            done = self._run_container(name, task, component, executor["container"], task_inputs)
        except StepError:
            self.backend.metadata.record_step(name, "FAILED", self.contexts)
            raise
        self.backend.metadata.record_step(name, "COMPLETE", self.contexts)
        self.backend.cache[key] = done
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
        self, name: str, task: Document, component: Document, container: Document, task_inputs: Document
    ) -> tuple[dict[str, Document], Document]:
        pod = f"{name.lower()}-{uuid.uuid4().hex[:8]}"
        task_root = f"{self.root}/{name}/{uuid.uuid4()}"
        outputs = component.get("outputDefinitions", {})
        folder = self.backend.steps.root(pod)
        artifacts = {
            key: {"name": key, "uri": f"{task_root}/{key}", "type": definition["artifactType"], "metadata": {}}
            for key, definition in outputs.get("artifacts", {}).items()
        }
        log = {"name": "executor-logs", "uri": f"{task_root}/executor-logs", "type": {"schemaTitle": "system.Artifact"}}
        after = posixpath.join(self.backend.local(pod, task_root), "output_metadata.json")
        before = posixpath.join(folder, "tmp/kfp_outputs/output_metadata.json")
        output_file = after if self.backend.output_file == "task-root" else before
        executor_input = {
            "inputs": {
                "parameterValues": task_inputs["parameterValues"],
                "artifacts": {key: {"artifacts": [artifact]} for key, artifact in task_inputs["artifacts"].items()},
            },
            "outputs": {
                "artifacts": {
                    key: {"artifacts": [artifact]} for key, artifact in {**artifacts, "executor-logs": log}.items()
                },
                "parameters": {
                    key: {"outputFile": posixpath.join(folder, "tmp/kfp/outputs", key)}
                    for key in outputs.get("parameters", {})
                },
                "outputFile": output_file,
            },
        }
        placeholders = {"{{$}}": json.dumps(_as_go_writes(executor_input))}
        for key, value in task_inputs["parameterValues"].items():
            placeholders[f"{{{{$.inputs.parameters['{key}']}}}}"] = str(value)
        for kind in ("inputs", "outputs"):
            for key, listed in executor_input[kind]["artifacts"].items():
                uri = listed["artifacts"][0]["uri"]
                placeholders[f"{{{{$.{kind}.artifacts['{key}'].uri}}}}"] = uri
                placeholders[f"{{{{$.{kind}.artifacts['{key}'].path}}}}"] = self.backend.local(pod, uri)
        step = Step(
            name=name,
            pod=pod,
            words=[_replace_placeholders(word, placeholders) for word in (*container["command"], *container["args"])],
            inputs=[artifact["uri"] for artifact in task_inputs["artifacts"].values()],
            outputs=[artifact["uri"] for artifact in artifacts.values()],
            output_file=output_file,
            container=container,
            config=self.platform.get(component["executorLabel"], {}),
            retries=task.get("retryPolicy", {}),
        )
        self.result.logs[name], output = self.backend.steps.run(step)
        json_format.ParseDict(output, pipeline_spec_pb2.ExecutorOutput())  # raises for unknown fields
        if unknown := set(output.get("artifacts", {})) - set(artifacts):
            raise ValueError(f"the step has no output artifacts {unknown}")
        recorded = {}
        for key, artifact in artifacts.items():
            output_artifact = output.get("artifacts", {}).get(key, {}).get("artifacts", [{}])[0]
            merged = {
                **artifact,
                "uri": output_artifact.get("uri") or artifact["uri"],
                "metadata": output_artifact.get("metadata", {}),
            }
            # The launcher copies outputs from where the driver said; an executor that
            # writes to another address does so itself.
            if not merged["uri"].startswith(self.root):
                raise ValueError(f"URI {merged['uri']!r} does not have expected bucket prefix {self.root!r}")
            recorded[key] = self._recorded(key, artifact["type"], merged, component)
        return recorded, output.get("parameterValues", {})

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


def in_order(tasks: Mapping[str, Document]) -> Iterator[tuple[str, Document]]:
    """Yields the tasks of a pipeline by name, each after those that it needs."""
    waiting, ended = dict(tasks), set()
    while waiting:
        ready = sorted(name for name, task in waiting.items() if _needs(task) <= ended)
        if not ready:
            raise ValueError(f"these wait for each other, or for what is not there: {sorted(waiting)}")
        for name in ready:
            yield name, waiting.pop(name)
            ended.add(name)


def _needs(task: Document) -> set[str]:
    inputs = task.get("inputs", {})
    sources = [*inputs.get("artifacts", {}).values(), *inputs.get("parameters", {}).values()]
    producers = {output["producerTask"] for source in sources for output in source.values() if "producerTask" in output}
    return producers.union(task.get("dependentTasks", ()))


def resolve(
    task: Document,
    parameters: Mapping[str, Any],
    artifacts: Mapping[str, Mapping[str, Document]],
    produced: Mapping[str, Mapping[str, Any]],
) -> tuple[Document, dict[str, Document | None]]:
    """Returns the parameters and the artifacts that a task gets.

    Args:
      task: The task.
      parameters: Those of the pipeline.
      artifacts: Task -> name -> its output artifact.
      produced: Task -> its output parameters.
    """
    values = {}
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        if "componentInputParameter" in source:
            values[name] = parameters[source["componentInputParameter"]]
        elif "taskOutputParameter" in source:
            output = source["taskOutputParameter"]
            values[name] = produced[output["producerTask"]][output["outputParameterKey"]]
        else:  # `constant` of KFP, `constantValue` of TFX's compiler for Vertex AI
            (values[name],) = source["runtimeValue"].values()
    inputs = {}
    for name, source in task.get("inputs", {}).get("artifacts", {}).items():
        output = source["taskOutputArtifact"]
        inputs[name] = artifacts[output["producerTask"]].get(output["outputArtifactKey"])
    return values, inputs


def _resolve_inputs(
    task: Document,
    component: Document,
    parameters: Mapping[str, Any],
    artifacts: Mapping[str, Mapping[str, Document]],
    produced: Mapping[str, Mapping[str, Any]],
    constants: Mapping[str, str],
) -> Document:
    """Returns a task's inputs: `{"parameterValues": ..., "artifacts": ...}`."""
    values, input_artifacts = resolve(task, parameters, artifacts, produced)
    values = {name: constants.get(value, value) if isinstance(value, str) else value for name, value in values.items()}
    declared = component.get("inputDefinitions", {}).get("parameters", {})
    missing = [name for name in component.get("inputDefinitions", {}).get("artifacts", {}) if not input_artifacts.get(name)]
    if missing:
        raise ValueError(f"input artifacts are not given: {missing}")
    return {"parameterValues": _with_defaults(values, declared), "artifacts": input_artifacts}


def _make_cache_key(
    pipeline: str, task_inputs: Document, component: Document, container: Document, claims: list[str]
) -> str:
    """Returns KFP's cache key of an execution (`backend/src/v2/driver/cache.go`).

    It has the pipeline's name, names of input artifacts (their numbers in the metadata
    store), parameters, outputs, command, image, and the claims that are mounted.
    """
    names = {name: artifact["name"] for name, artifact in task_inputs["artifacts"].items()}
    outputs = component.get("outputDefinitions", {})
    words = [*container["command"], *container["args"]]
    parts = [pipeline, names, task_inputs["parameterValues"], outputs, words, container["image"], claims]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _replace_placeholders(word: str, placeholders: Mapping[str, str]) -> str:
    for placeholder, value in placeholders.items():
        word = word.replace(placeholder, value)
    return word


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
