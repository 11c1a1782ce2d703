"""What TFX compiles a pipeline to -> what open-source Kubeflow Pipelines runs. Pure: documents in, documents out.

The document is KFP's PipelineSpec, schema 2.1 (`api/v2alpha1/pipeline_spec.proto` of github.com/kubeflow/pipelines). TFX
writes it for Vertex AI; the backend of open-source Kubeflow Pipelines refuses some of it, and ignores more.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx_distribute.components.container.names import RESOLVED_INPUT
from tfx_distribute.trainer_module.errors import ConfigurationError

Document = dict[str, Any]

EXECUTOR = "_executor"  # how TFX calls the executor of a component: after it, with this
COMMAND = ["python", "-m", "tfx_distribute.components.container"]
GUARDED_COMMAND = ["python", "-m", "tfx_distribute.components.container.vertex"]
_ILLEGAL = re.compile(r"[^a-zA-Z0-9-]+")
_OF_TFX = ("--executor_class_path", "--json_serialized_invocation_args", "--json_serialized_inputs_spec_args")
_BLESSING_RESOLVER, _MODEL_RESOLVER = "-model-blessing-resolver", "-model-resolver"


def with_defaults(pipeline: Document, defaults: Mapping[str, Any]) -> Document:
    """Puts the defaults of pipeline parameters back, which TFX loses.

    Args:
      pipeline: The pipeline.
      defaults: Name of a parameter -> its default; None where it has to be given with each run.
    """
    pipeline = copy.deepcopy(pipeline)
    for name, parameter in pipeline["root"].get("inputDefinitions", {}).get("parameters", {}).items():
        if defaults.get(name) is not None:
            parameter.update(defaultValue=defaults[name], isOptional=True)
    return pipeline


def with_entrypoint(pipeline: Document) -> Document:
    """Has each component run by our entrypoint instead of TFX's."""
    pipeline = copy.deepcopy(pipeline)
    for component, container in _containers(pipeline):
        if "--executor_class_path" in container.get("args", ()):
            class_path, beam_args = _parts(container["args"])
            container["command"] = COMMAND
            container["args"] = [*_step("execute", class_path, component), *beam_args]
    return pipeline


def with_guarded_entrypoint(pipeline: Document) -> Document:
    """Runs each component by TFX's entrypoint within ours, which fails where user code calls `sys.exit(0)`."""
    pipeline = copy.deepcopy(pipeline)
    for _, container in _containers(pipeline):
        if "--executor_class_path" in container.get("args", ()):
            container["command"] = GUARDED_COMMAND
    return pipeline


def with_resolved_input(pipeline: Document, drivers: Mapping[str, str]) -> Document:
    """Gives each file-based ExampleGen a step before it that looks at the files, as TFX's driver does elsewhere.

    Its result is a parameter of the ExampleGen, so that Kubeflow's cache knows of it: other files, another key.

    Args:
      pipeline: The pipeline.
      drivers: Name of the task of an ExampleGen -> dotted path of its driver's class.
    """
    pipeline = copy.deepcopy(pipeline)
    tasks, components = _tasks(pipeline), pipeline["components"]
    for name, driver in drivers.items():
        task, resolver = tasks[name], f"{name}-input"
        component = components[task["componentRef"]["name"]]
        container = _executor(pipeline, component)["container"]
        container.pop("lifecycle", None)
        string = {"parameterType": "STRING"}
        interface = {
            "inputDefinitions": copy.deepcopy(component["inputDefinitions"]),
            "outputDefinitions": {"parameters": {RESOLVED_INPUT: string}},
        }
        given = {"parameters": copy.deepcopy(task["inputs"]["parameters"])}
        new = {"image": container["image"], "command": COMMAND, "args": _step("resolve-input", driver, interface)}
        _add(pipeline, resolver, interface, {"container": new}, {"inputs": given})
        component["inputDefinitions"]["parameters"][RESOLVED_INPUT] = string
        task["inputs"]["parameters"][RESOLVED_INPUT] = {
            "taskOutputParameter": {"producerTask": resolver, "outputParameterKey": RESOLVED_INPUT}
        }
        task["dependentTasks"] = sorted({*task.get("dependentTasks", ()), resolver})
    return pipeline


def without_resolvers(pipeline: Document, image: str, metadata_service: str, pipeline_root: str) -> Document:
    """Replaces the resolver of the latest blessed model by steps that work without resolvers.

    One asks the metadata store for the model's address; an importer, which can only take what comes into its own pipeline,
    and so has one around it, makes an artifact of it.

    Args:
      pipeline: The pipeline.
      image: Container image of the step.
      metadata_service: `host:port` of Kubeflow's metadata store.
      pipeline_root: Address that artifacts are written under.

    Raises:
      ConfigurationError: There is a resolver of another kind.
    """
    pipeline = copy.deepcopy(pipeline)
    tasks = _tasks(pipeline)
    resolvers = {name for name, task in tasks.items() if "resolver" in _executor(pipeline, _component(pipeline, task))}
    used = {artifact["producerTask"] for task in tasks.values() for artifact in _artifacts_of(task)}
    for name in sorted(resolvers):
        node = name.removesuffix(_MODEL_RESOLVER)
        if name.endswith(_BLESSING_RESOLVER) and f"{name.removesuffix(_BLESSING_RESOLVER)}{_MODEL_RESOLVER}" in resolvers:
            continue
        if f"{node}{_BLESSING_RESOLVER}" not in resolvers or node == name:
            raise ConfigurationError(
                f"{name}: Kubeflow Pipelines has no resolvers; only that of the latest blessed model is replaced. Give the "
                "artifact by an Importer, or by a component of your own"
            )
        model_type = _component(pipeline, tasks[name])["outputDefinitions"]["artifacts"]["model"]
        for old in (name, f"{node}{_BLESSING_RESOLVER}"):
            _remove(pipeline, old)
        if name not in used:
            continue
        _add_latest_blessed_model(pipeline, node, model_type, image, metadata_service, pipeline_root)
        for task in tasks.values():
            for artifact in _artifacts_of(task):
                if artifact["producerTask"] == name:
                    artifact.update(producerTask=f"{node}-import", outputArtifactKey="model")
            if name in task.get("dependentTasks", ()):
                others = [dependency for dependency in task["dependentTasks"] if dependency != name]
                task["dependentTasks"] = sorted([*others, f"{node}-import"])
    return pipeline


def _add_latest_blessed_model(
    pipeline: Document, node: str, model_type: Document, image: str, metadata_service: str, pipeline_root: str
) -> None:
    uri = {"parameters": {"uri": {"parameterType": "STRING"}}}
    arguments = ["--metadata-service", metadata_service, "--pipeline", pipeline["pipelineInfo"]["name"]]
    arguments += ["--pipeline-root", pipeline_root.rstrip("/")]
    step = {
        "image": image,
        "command": COMMAND,
        "args": ["latest-blessed-model", "--executor-input", "{{$}}", *arguments],
    }
    _add(pipeline, node, {"outputDefinitions": uri}, {"container": step}, {})
    importer, outer = f"{node}-importer", f"{node}-import"
    of_importer = {"inputDefinitions": uri, "outputDefinitions": {"artifacts": {"artifact": model_type}}}
    address = {"artifactUri": {"runtimeParameter": "uri"}, "typeSchema": model_type["artifactType"]}
    own = {"uri": {"componentInputParameter": "uri"}}
    pipeline["components"][importer] = {**of_importer, "executorLabel": f"{importer}{EXECUTOR}"}
    pipeline["deploymentSpec"]["executors"][f"{importer}{EXECUTOR}"] = {"importer": address}
    selected = {"artifactSelectors": [{"producerSubtask": importer, "outputArtifactKey": "artifact"}]}
    pipeline["components"][outer] = {
        "inputDefinitions": uri,
        "outputDefinitions": {"artifacts": {"model": model_type}},
        "dag": {
            "outputs": {"artifacts": {"model": selected}},
            "tasks": {importer: _task(importer, {"inputs": {"parameters": own}})},
        },
    }
    produced = {"taskOutputParameter": {"producerTask": node, "outputParameterKey": "uri"}}
    task = {"inputs": {"parameters": {"uri": produced}}, "dependentTasks": [node]}
    _tasks(pipeline)[outer] = _task(outer, task)


def uncached(pipeline: Document, tasks: Sequence[str]) -> Document:
    """Has some tasks run each time: what they read may have changed without any of their parameters."""
    pipeline = copy.deepcopy(pipeline)
    for name in tasks:
        _tasks(pipeline)[name].pop("cachingOptions", None)
    return pipeline


def with_resources(pipeline: Document, resources: Mapping[str, Document]) -> Document:
    """Gives tasks their resources.

    Args:
      pipeline: The pipeline.
      resources: Name of a task -> a ResourceSpec; a task that is not there keeps what it has.
    """
    pipeline = copy.deepcopy(pipeline)
    for name, given in resources.items():
        _executor(pipeline, _component(pipeline, _tasks(pipeline)[name]))["container"]["resources"] = given
    return pipeline


def with_retries(pipeline: Document, tasks: Sequence[str], most: int) -> Document:
    """Has some tasks tried again when they fail."""
    pipeline = copy.deepcopy(pipeline)
    for name in tasks:
        _tasks(pipeline)[name]["retryPolicy"] = {"maxRetryCount": most}
    return pipeline


def with_legal_names(pipeline: Document) -> Document:
    """Renames tasks and components to what Argo, which runs them, takes: letters, digits and hyphens."""
    names = _legal([*_tasks(pipeline), *pipeline["components"]])

    def renamed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            keyed_by_name = key in ("tasks", "components")
            return {names.get(name, name) if keyed_by_name else name: renamed(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [renamed(part, key) for part in value]
        return names.get(value, value) if key in _NAMING else value

    pipeline = renamed(pipeline)
    for dag in _dags(pipeline):
        for name, task in dag["tasks"].items():
            task["taskInfo"]["name"] = name
            task["componentRef"]["name"] = names.get(task["componentRef"]["name"], task["componentRef"]["name"])
    return pipeline


_NAMING = ("dependentTasks", "producerTask", "producerSubtask")


def _legal(names: Sequence[str]) -> dict[str, str]:
    """Name -> legal name; no two are the same, and none is that of what the backend itself runs for another."""
    found: dict[str, str] = {}
    taken = {"root", "executor"}
    for name in sorted(set(names), key=lambda name: (bool(_ILLEGAL.search(name)), name)):  # what is legal stays
        legal = base = _ILLEGAL.sub("-", name).strip("-") or "node"
        number = 2
        while legal in taken:
            legal, number = f"{base}-{number}", number + 1
        found[name] = legal
        taken |= {legal, f"{legal}-driver"}
    return found


def check(pipeline: Document) -> None:
    """Refuses what the backend of Kubeflow Pipelines would refuse, or would not do.

    Raises:
      ConfigurationError: There is something of the kind.
    """
    for dag in _dags(pipeline):
        for name, task in dag["tasks"].items():
            executor = _executor(pipeline, _component(pipeline, task))
            uri = executor.get("importer", {}).get("artifactUri", {}).get("constant", "")
            if uri and not uri.startswith(("gs://", "s3://", "minio://", "oci://")):
                raise ConfigurationError(
                    f"{name}: imports {uri!r}, which a cluster cannot read; write a gs:// or s3:// address"
                )
            if task.get("triggerPolicy", {}).get("condition"):
                raise ConfigurationError(f"{name}: depends on a condition, and Kubeflow Pipelines knows none on artifacts")
            if executor.get("container", {}).get("lifecycle"):
                raise ConfigurationError(f"{name}: has a driver, which Kubeflow Pipelines would leave out")


def _step(command: str, class_path: str, interface: Document) -> list[str]:
    """Arguments of our entrypoint."""
    interface = {key: interface[key] for key in ("inputDefinitions", "outputDefinitions") if key in interface}
    arguments = [command, "--class", class_path, "--executor-input", "{{$}}"]
    arguments += ["--component", json.dumps(interface, sort_keys=True)]
    for kind in ("inputs", "outputs"):
        for name in sorted(interface.get(f"{kind[:-1]}Definitions", {}).get("artifacts", ())):
            arguments += ["--path", f"{kind}/{name}={{{{$.{kind}.artifacts['{name}'].path}}}}"]
    return arguments


def _parts(tfx_args: Sequence[str]) -> tuple[str, list[str]]:
    """The executor's class, and Beam's options, of the arguments of TFX's entrypoint."""
    named, rest = {}, list(tfx_args)
    while rest and rest[0] in _OF_TFX:
        named[rest[0]] = rest[1]
        del rest[:2]
    return named["--executor_class_path"], rest


def _tasks(pipeline: Document) -> Document:
    tasks: Document = pipeline["root"]["dag"]["tasks"]
    return tasks


def _dags(pipeline: Document) -> Iterator[Document]:
    yield pipeline["root"]["dag"]
    yield from (component["dag"] for component in pipeline["components"].values() if "dag" in component)


def _component(pipeline: Document, task: Document) -> Document:
    component: Document = pipeline["components"][task["componentRef"]["name"]]
    return component


def _executor(pipeline: Document, component: Document) -> Document:
    """A component's executor; empty where it is a pipeline of its own."""
    executor: Document = pipeline["deploymentSpec"]["executors"].get(component.get("executorLabel"), {})
    return executor


def _containers(pipeline: Document) -> Iterator[tuple[Document, Document]]:
    for component in pipeline["components"].values():
        executor = _executor(pipeline, component)
        if "container" in executor:
            yield component, executor["container"]


def _artifacts_of(task: Document) -> Iterator[Document]:
    """Where a task's input artifacts come from."""
    for artifact in task.get("inputs", {}).get("artifacts", {}).values():
        if "taskOutputArtifact" in artifact:
            yield artifact["taskOutputArtifact"]


def _task(name: str, task: Document) -> Document:
    return {"taskInfo": {"name": name}, "componentRef": {"name": name}, **task}


def _add(pipeline: Document, name: str, interface: Document, executor: Document, task: Document) -> None:
    label = f"{name}{EXECUTOR}"
    pipeline["components"][name] = {**interface, "executorLabel": label}
    pipeline["deploymentSpec"]["executors"][label] = executor
    _tasks(pipeline)[name] = _task(name, task)


def _remove(pipeline: Document, name: str) -> None:
    task = _tasks(pipeline).pop(name)
    component = pipeline["components"].pop(task["componentRef"]["name"])
    del pipeline["deploymentSpec"]["executors"][component["executorLabel"]]
