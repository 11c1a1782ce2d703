"""Rewrites pipelines compiled by TFX so that open-source Kubeflow Pipelines runs them.

A document is KFP's PipelineSpec, schema 2.1 (`api/v2alpha1/pipeline_spec.proto` of
github.com/kubeflow/pipelines). TFX writes it for Vertex AI; the backend of open-source
Kubeflow Pipelines refuses some of it, and ignores more. Functions change the document
that they are given.
"""

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from tfx_distribute import __version__
from tfx_distribute.components.container.names import BLESSING, RESOLVED_INPUT
from tfx_distribute.components.example_gen.names import LAST_SPAN, SCHEDULED_AT
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS

Document = dict[str, Any]

EXECUTOR = "_executor"  # suffix that TFX adds to a component's name for its executor
ENTRYPOINT = "tfx_distribute.components.container"
GUARDED_ENTRYPOINT = "tfx_distribute.components.container.vertex"
# Python's own errors for an image without this package, or with packages of two lines
# of TFX, do not say how to fix it.
_START = """\
import runpy, sys
remedy = "build the image with tfx-distribute {version}, which compiled this pipeline, under a new tag"
try:
    from tfx_distribute import __version__ as found
except ImportError as error:
    sys.exit(f"image: {{error}}; {{remedy}}")
if found != "{version}":
    sys.exit(f"image: it has tfx-distribute {{found}}; {{remedy}}")
from tfx_distribute.trainer_module import errors, lines
try:
    lines.check()
except errors.ConfigurationError as error:
    sys.exit(f"image: {{error}}")
runpy.run_module("{module}", run_name="__main__", alter_sys=True)
"""
# kfp's dsl.PIPELINE_JOB_SCHEDULE_TIME_UTC_PLACEHOLDER: for a run that was started by
# hand, the time when it was created.
_SCHEDULE_TIME = "{{$.pipeline_job_schedule_time_utc}}"
WHOLE = "exit-handler-1"  # kfp's name of a pipeline within one, whose end a step waits for
SCHEMA_VERSION = "0.0.1"  # of `system.` types, as kfp writes it
_TITLE = re.compile(r"^title: (system\.\w+)$", re.MULTILINE)
_ILLEGAL = re.compile(r"[^a-zA-Z0-9-]+")
_TFX_ARGUMENTS = ("--executor_class_path", "--json_serialized_invocation_args", "--json_serialized_inputs_spec_args")
_BLESSING_RESOLVER, _MODEL_RESOLVER = "-model-blessing-resolver", "-model-resolver"


def make_command(module: str, version: str = __version__) -> list[str]:
    """Returns the command of a step: `python -m MODULE`, and a check of the image.

    `version` is that of this package, which the image has to have.
    """
    return ["python", "-c", _START.format(module=module, version=version)]


def set_defaults(pipeline: Document, defaults: Mapping[str, Any]) -> None:
    """Restores the defaults of pipeline parameters, which TFX loses.

    A default of None means that each run must set the parameter.
    """
    for name, parameter in pipeline["root"].get("inputDefinitions", {}).get("parameters", {}).items():
        if defaults.get(name) is not None:
            parameter.update(defaultValue=defaults[name], isOptional=True)


def restore_order_of_resolvers(pipeline: Document, upstream: Mapping[str, Sequence[str]]) -> None:
    """Restores the order of resolvers and other nodes, which TFX loses.

    Its tasks of a resolver wait for nothing, and what waits for the resolver of the
    latest blessed model waits for a task that is not there: that one has two tasks.

    `pipeline` is as TFX compiles it; `upstream` is id of a resolver -> ids of the nodes
    that it waits for.
    """
    tasks = _get_tasks(pipeline)
    for node, dependencies in upstream.items():
        task = tasks[node if node in tasks else f"{node}{_BLESSING_RESOLVER}"]
        task["dependentTasks"] = [*task.get("dependentTasks", ()), *dependencies]
    last_tasks = {node: node if node in tasks else f"{node}{_MODEL_RESOLVER}" for node in upstream}
    for task in tasks.values():
        if task.get("dependentTasks"):
            task["dependentTasks"] = sorted({last_tasks.get(name, name) for name in task["dependentTasks"]})


def set_entrypoint(pipeline: Document) -> None:
    """Replaces TFX's entrypoint of each component by ours."""
    for component, container in _iterate_containers(pipeline):
        if "--executor_class_path" in container.get("args", ()):
            class_path, beam_args = _split_tfx_arguments(container["args"])
            container["command"] = make_command(ENTRYPOINT)
            container["args"] = [*_make_arguments("execute", class_path, component), *beam_args]


def guard_entrypoint(pipeline: Document) -> None:
    """Wraps TFX's entrypoint in ours, which fails if user code calls `sys.exit(0)`."""
    for _, container in _iterate_containers(pipeline):
        if "--executor_class_path" in container.get("args", ()):
            container["command"] = make_command(GUARDED_ENTRYPOINT)


def set_system_types(pipeline: Document) -> None:
    """Declares output artifacts of `system.` types as kfp does.

    TFX declares every type by a schema of its own, and pages show those of `kfp.dsl`.
    """
    for component in pipeline["components"].values():
        for output in component.get("outputDefinitions", {}).get("artifacts", {}).values():
            title = _TITLE.search(output["artifactType"].get("instanceSchema", ""))
            if title:
                output["artifactType"] = {"schemaTitle": title[1], "schemaVersion": SCHEMA_VERSION}


def add_resolved_input(pipeline: Document, drivers: Mapping[str, str]) -> None:
    """Adds a step before each file-based ExampleGen that inspects the files.

    TFX's driver does this on other platforms. The result is a parameter of the
    ExampleGen, so that changed files change the key in Kubeflow's cache.

    `drivers` is task name of an ExampleGen -> dotted path of its driver's class.
    """
    tasks, components = _get_tasks(pipeline), pipeline["components"]
    for name, driver in drivers.items():
        task, resolver = tasks[name], f"{name}-input"
        component = components[task["componentRef"]["name"]]
        container = _get_executor(pipeline, component)["container"]
        container.pop("lifecycle", None)
        string = {"parameterType": "STRING"}
        interface = {
            "inputDefinitions": copy.deepcopy(component["inputDefinitions"]),
            "outputDefinitions": {"parameters": {RESOLVED_INPUT: string}},
        }
        inputs = {"parameters": copy.deepcopy(task["inputs"]["parameters"])}
        if LAST_SPAN in inputs["parameters"]:  # not for the ExampleGen, whose key in the cache it would change
            interface["inputDefinitions"]["parameters"][SCHEDULED_AT] = string
            inputs["parameters"][SCHEDULED_AT] = {"runtimeValue": {"constant": _SCHEDULE_TIME}}
        arguments = _make_arguments("resolve-input", driver, interface)
        resolver_container = {"image": container["image"], "command": make_command(ENTRYPOINT), "args": arguments}
        # What makes the files has to be done before they are inspected.
        order = {"dependentTasks": list(task["dependentTasks"])} if task.get("dependentTasks") else {}
        _add_task(pipeline, resolver, interface, {"container": resolver_container}, {"inputs": inputs, **order})
        component["inputDefinitions"]["parameters"][RESOLVED_INPUT] = string
        task["inputs"]["parameters"][RESOLVED_INPUT] = {
            "taskOutputParameter": {"producerTask": resolver, "outputParameterKey": RESOLVED_INPUT}
        }
        task["dependentTasks"] = sorted({*task.get("dependentTasks", ()), resolver})


def set_schedule_time(pipeline: Document, names: Iterable[str]) -> None:
    """Passes the scheduled time of the run to ExampleGens on Vertex AI.

    The pipeline is of the schema 2.0.0, and `names` are those of tasks.
    """
    for name in names:
        task = _get_tasks(pipeline)[name]
        _get_component(pipeline, task)["inputDefinitions"]["parameters"][SCHEDULED_AT] = {"type": "STRING"}
        value = {"constantValue": {"stringValue": _SCHEDULE_TIME}}
        task["inputs"]["parameters"][SCHEDULED_AT] = {"runtimeValue": value}


def replace_resolvers(pipeline: Document, image: str, metadata_service: str, pipeline_root: str) -> None:
    """Replaces resolvers of the latest blessed model or artifact by ordinary steps.

    One step asks the metadata store for the address, and an importer makes an
    artifact of it. An importer can only read inputs of its own pipeline, so it gets a
    nested pipeline around it.

    `image` is that of the step, and `metadata_service` the `host:port` of Kubeflow's
    metadata store. Another kind of resolver raises a ConfigurationError.
    """
    tasks = _get_tasks(pipeline)
    resolvers = {
        name for name, task in tasks.items() if "resolver" in _get_executor(pipeline, _get_component(pipeline, task))
    }
    used = {artifact["producerTask"] for task in tasks.values() for artifact in _iterate_input_artifacts(task)}
    used |= {name for task in tasks.values() for name in task.get("dependentTasks", ())}
    for name in sorted(resolvers):
        node = name.removesuffix(_MODEL_RESOLVER)
        if name.endswith(_BLESSING_RESOLVER) and f"{name.removesuffix(_BLESSING_RESOLVER)}{_MODEL_RESOLVER}" in resolvers:
            _check_unused(tasks, name, name.removesuffix(_BLESSING_RESOLVER))
            continue
        is_blessed = f"{node}{_BLESSING_RESOLVER}" in resolvers and node != name
        outputs = _get_component(pipeline, tasks[name])["outputDefinitions"]["artifacts"]
        if len(outputs) > 1:
            raise ConfigurationError(
                f"{name}: Kubeflow Pipelines has no resolvers; only those of the latest blessed model, and of the latest "
                "artifact of one type, are replaced. Make a resolver for each type"
            )
        ((key, artifact_type),) = outputs.items()
        type_name = BLESSING if is_blessed else _read_title(artifact_type["artifactType"])
        dependencies = _remove_task(pipeline, name).get("dependentTasks", [])
        if is_blessed:
            dependencies = _remove_task(pipeline, f"{node}{_BLESSING_RESOLVER}").get("dependentTasks", [])
        if name not in used:
            continue
        arguments = ["--metadata-service", metadata_service, "--pipeline", pipeline["pipelineInfo"]["name"]]
        # Kubeflow reads a query such as ?region=eu as settings; addresses of artifacts
        # have none.
        arguments += ["--type", type_name, "--pipeline-root", pipeline_root.partition("?")[0].rstrip("/")]
        for task in tasks.values():
            for artifact in _iterate_input_artifacts(task):
                if artifact["producerTask"] == name:
                    artifact.update(producerTask=f"{node}-import", outputArtifactKey=key)
            if name in task.get("dependentTasks", ()):
                others = [dependency for dependency in task["dependentTasks"] if dependency != name]
                task["dependentTasks"] = sorted([*others, f"{node}-import"])
        _add_latest_artifact(pipeline, node, key, artifact_type, dependencies, image, arguments)


def _read_title(artifact_type: Document) -> str:
    """Returns the name of an artifact type in Kubeflow's metadata store."""
    return str(artifact_type.get("schemaTitle") or yaml.safe_load(artifact_type["instanceSchema"])["title"])


def _check_unused(tasks: Document, blessing_resolver: str, node: str) -> None:
    """Checks that nothing reads the blessing that a resolver finds with the model."""
    for name, task in tasks.items():
        reads_it = any(artifact["producerTask"] == blessing_resolver for artifact in _iterate_input_artifacts(task))
        if reads_it and name != f"{node}{_MODEL_RESOLVER}":
            raise ConfigurationError(
                f"{name}: reads the blessing of {node}, and on Kubeflow Pipelines there is only its model, which was "
                "blessed; leave the blessing out"
            )


def _add_latest_artifact(
    pipeline: Document,
    node: str,
    key: str,
    artifact_type: Document,
    dependencies: list[str],
    image: str,
    arguments: Sequence[str],
) -> None:
    uri = {"parameters": {"uri": {"parameterType": "STRING"}}}
    step = {
        "image": image,
        "command": make_command(ENTRYPOINT),
        "args": ["latest-artifact", "--executor-input", "{{$}}", *arguments],
    }
    order = {"dependentTasks": dependencies} if dependencies else {}
    _add_task(pipeline, node, {"outputDefinitions": uri}, {"container": step}, order)
    importer, nested_pipeline = f"{node}-importer", f"{node}-import"
    importer_interface = {"inputDefinitions": uri, "outputDefinitions": {"artifacts": {"artifact": artifact_type}}}
    address = {"artifactUri": {"runtimeParameter": "uri"}, "typeSchema": artifact_type["artifactType"]}
    importer_parameters = {"uri": {"componentInputParameter": "uri"}}
    pipeline["components"][importer] = {**importer_interface, "executorLabel": f"{importer}{EXECUTOR}"}
    pipeline["deploymentSpec"]["executors"][f"{importer}{EXECUTOR}"] = {"importer": address}
    selected = {"artifactSelectors": [{"producerSubtask": importer, "outputArtifactKey": "artifact"}]}
    pipeline["components"][nested_pipeline] = {
        "inputDefinitions": uri,
        "outputDefinitions": {"artifacts": {key: artifact_type}},
        "dag": {
            "outputs": {"artifacts": {key: selected}},
            "tasks": {importer: _make_task(importer, {"inputs": {"parameters": importer_parameters}})},
        },
    }
    produced = {"taskOutputParameter": {"producerTask": node, "outputParameterKey": "uri"}}
    task = {"inputs": {"parameters": {"uri": produced}}, "dependentTasks": [node]}
    _get_tasks(pipeline)[nested_pipeline] = _make_task(nested_pipeline, task)


def disable_cache(pipeline: Document, tasks: Sequence[str]) -> None:
    """Disables caching of tasks that depend on more than their inputs."""
    for name in tasks:
        _get_tasks(pipeline)[name].pop("cachingOptions", None)


def set_resources(pipeline: Document, resources: Mapping[str, Document]) -> None:
    """Sets the resources of tasks, name -> ResourceSpec; other tasks keep theirs."""
    for name, resource_spec in resources.items():
        executor = _get_executor(pipeline, _get_component(pipeline, _get_tasks(pipeline)[name]))
        executor["container"]["resources"] = resource_spec


def set_requested_gpus(pipeline: Document, tasks: Sequence[str]) -> None:
    """Tells tasks that train how many GPUs their containers request.

    They fail if TensorFlow does not see them. The pipeline has to have the resources of
    its tasks.
    """
    variables: dict[str, dict[str, str]] = {}
    for name in tasks:
        container = _get_executor(pipeline, _get_component(pipeline, _get_tasks(pipeline)[name]))["container"]
        accelerator = container.get("resources", {}).get("accelerator", {})
        # `nvidia.com/gpu` of Kubernetes, or such as `NVIDIA_L4` of Vertex AI
        if accelerator.get("type", "").lower().startswith("nvidia"):
            variables[name] = {REQUESTED_GPUS: str(accelerator.get("count", 1))}
    set_environment(pipeline, variables)


def set_environment(pipeline: Document, variables: Mapping[str, Mapping[str, str]]) -> None:
    """Sets environment variables of some containers: task -> variable -> value."""
    for name, values in variables.items():
        container = _get_executor(pipeline, _get_component(pipeline, _get_tasks(pipeline)[name]))["container"]
        if values:
            added = [{"name": variable, "value": value} for variable, value in values.items()]
            container["env"] = [*container.get("env", ()), *added]


def set_retries(pipeline: Document, tasks: Sequence[str], max_retries: int, **backoff: Any) -> None:
    """Sets how often some tasks are tried again when they fail.

    `backoff` has further fields of a RetryPolicy, such as `backoffDuration`.
    """
    for name in tasks:
        _get_tasks(pipeline)[name]["retryPolicy"] = {"maxRetryCount": max_retries, **backoff}


def add_exit_step(pipeline: Document, name: str, container: Document) -> None:
    """Adds a step that runs when all others have ended, however they ended.

    As kfp's `dsl.ExitHandler`, it puts the others into a pipeline within this one. It
    adds `--run-id` to the container, which tells it the run.

    Raises:
      ConfigurationError: A component has that name, or that of the pipeline within.
    """
    if taken := {name, WHOLE} & set(pipeline["components"]):
        raise ConfigurationError(f"{taken.pop()}: is the name of what notifications need; give the component another id")
    root = pipeline["root"]
    parameters = root.get("inputDefinitions", {}).get("parameters", {})
    pipeline["components"][WHOLE] = {"dag": root["dag"]}
    inputs = {}
    if parameters:
        pipeline["components"][WHOLE]["inputDefinitions"] = {"parameters": copy.deepcopy(parameters)}
        passed_on = {parameter: {"componentInputParameter": parameter} for parameter in parameters}
        inputs = {"inputs": {"parameters": passed_on}}
    root["dag"] = {"tasks": {WHOLE: _make_task(WHOLE, inputs)}}
    run_id = {"inputDefinitions": {"parameters": {"run_id": {"parameterType": "STRING"}}}}
    container = {**container, "args": ["--run-id", "{{$.inputs.parameters['run_id']}}", *container["args"]]}
    task = {
        "inputs": {"parameters": {"run_id": {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}}},
        "dependentTasks": [WHOLE],
        "triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"},
    }
    _add_task(pipeline, name, run_id, {"container": container}, task)


def with_legal_names(pipeline: Document) -> Document:
    """Renames tasks and components to names that Argo, which runs them, accepts.

    Legal names have letters, digits and hyphens.
    """
    names = _make_legal_names([*_get_tasks(pipeline), *pipeline["components"]])

    def rename(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            keyed_by_name = key in ("tasks", "components")
            return {names.get(name, name) if keyed_by_name else name: rename(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [rename(part, key) for part in value]
        return names.get(value, value) if key in _TASK_REFERENCES else value

    pipeline = rename(pipeline)
    for dag in _iterate_dags(pipeline):
        for name, task in dag["tasks"].items():
            task["taskInfo"]["name"] = name
            task["componentRef"]["name"] = names.get(task["componentRef"]["name"], task["componentRef"]["name"])
    return pipeline


_TASK_REFERENCES = ("dependentTasks", "producerTask", "producerSubtask")


def _make_legal_names(names: Sequence[str]) -> dict[str, str]:
    """Returns a unique legal name for each name.

    None of them is the name of a step that the backend adds itself, such as a driver.
    """
    legal_names: dict[str, str] = {}
    taken = {"root", "executor"}
    # Legal names come first, so that they are kept.
    for name in sorted(set(names), key=lambda name: (bool(_ILLEGAL.search(name)), name)):
        legal = base = _ILLEGAL.sub("-", name).strip("-") or "node"
        number = 2
        while legal in taken:
            legal, number = f"{base}-{number}", number + 1
        legal_names[name] = legal
        taken |= {legal, f"{legal}-driver"}
    return legal_names


def check_references(pipeline: Document) -> None:
    """Checks that tasks depend on tasks of the same pipeline."""
    for dag in _iterate_dags(pipeline):
        for name, task in dag["tasks"].items():
            inputs = task.get("inputs", {})
            sources = [*inputs.get("artifacts", {}).values(), *inputs.get("parameters", {}).values()]
            outputs = [source.get("taskOutputArtifact") or source.get("taskOutputParameter") for source in sources]
            needed = [*task.get("dependentTasks", ()), *(output["producerTask"] for output in outputs if output)]
            missing = sorted(set(needed) - set(dag["tasks"]))
            if missing:
                raise ConfigurationError(
                    f"{name}: depends on {missing[0]}, which is not in the pipeline; add it to its components"
                )


def check(pipeline: Document) -> None:
    """Checks for features that the backend of Kubeflow Pipelines refuses or ignores."""
    check_references(pipeline)
    for dag in _iterate_dags(pipeline):
        for name, task in dag["tasks"].items():
            executor = _get_executor(pipeline, _get_component(pipeline, task))
            uri = executor.get("importer", {}).get("artifactUri", {}).get("constant", "")
            if uri and not uri.startswith(("gs://", "s3://", "minio://", "oci://")):
                raise ConfigurationError(
                    f"{name}: imports {uri!r}, which a cluster cannot read; write a gs:// or s3:// address"
                )
            if task.get("triggerPolicy", {}).get("condition"):
                raise ConfigurationError(
                    f"{name}: depends on a condition, and Kubeflow Pipelines has no conditions on artifacts"
                )
            if executor.get("container", {}).get("lifecycle"):
                raise ConfigurationError(f"{name}: has a driver, which Kubeflow Pipelines would leave out")


def _make_arguments(command: str, class_path: str, component: Document) -> list[str]:
    """Returns the arguments of our entrypoint for a command that runs a class."""
    interface = _make_interface(component)
    arguments = [command, "--class", class_path, "--executor-input", "{{$}}"]
    arguments += ["--interface", json.dumps(interface, sort_keys=True)]
    for kind in ("inputs", "outputs"):
        for name in sorted(interface[kind]):
            arguments += ["--path", f"{kind}/{name}={{{{$.{kind}.artifacts['{name}'].path}}}}"]
    return arguments


def _make_interface(component: Document) -> Document:
    """Returns what a step has to know of its ComponentSpec; see `executor_io.read`.

    Kept short: a workflow has the arguments of a step eight times, and the API server
    does not update the steps of one of more than a mebibyte, which Argo compresses.
    """

    def find_titles(key: str) -> dict[str, str]:
        types = {name: each["artifactType"] for name, each in component.get(key, {}).get("artifacts", {}).items()}
        return {
            name: found.get("schemaTitle") or yaml.safe_load(found["instanceSchema"])["title"]
            for name, found in types.items()
        }

    parameters = component.get("inputDefinitions", {}).get("parameters", {})
    numbers = {
        kind: sorted(name for name, each in parameters.items() if each.get("parameterType") == f"NUMBER_{kind.upper()}")
        for kind in ("integer", "double")
    }
    return {"inputs": find_titles("inputDefinitions"), "outputs": find_titles("outputDefinitions"), **numbers}


def _split_tfx_arguments(tfx_args: Sequence[str]) -> tuple[str, list[str]]:
    """Splits TFX's entrypoint arguments into executor class and Beam options."""
    named, beam_args = {}, list(tfx_args)
    while beam_args and beam_args[0] in _TFX_ARGUMENTS:
        named[beam_args[0]] = beam_args[1]
        del beam_args[:2]
    return named["--executor_class_path"], beam_args


def list_containers(pipeline: Document) -> list[str]:
    """Returns the names of all tasks that run a container."""
    return [
        name
        for dag in _iterate_dags(pipeline)
        for name, task in dag["tasks"].items()
        if "container" in _get_executor(pipeline, _get_component(pipeline, task))
    ]


def _get_tasks(pipeline: Document) -> Document:
    tasks: Document = pipeline["root"]["dag"]["tasks"]
    return tasks


def _iterate_dags(pipeline: Document) -> Iterator[Document]:
    yield pipeline["root"]["dag"]
    yield from (component["dag"] for component in pipeline["components"].values() if "dag" in component)


def _get_component(pipeline: Document, task: Document) -> Document:
    component: Document = pipeline["components"][task["componentRef"]["name"]]
    return component


def _get_executor(pipeline: Document, component: Document) -> Document:
    """Returns a component's executor; empty for a nested pipeline."""
    executor: Document = pipeline["deploymentSpec"]["executors"].get(component.get("executorLabel"), {})
    return executor


def _iterate_containers(pipeline: Document) -> Iterator[tuple[Document, Document]]:
    for component in pipeline["components"].values():
        executor = _get_executor(pipeline, component)
        if "container" in executor:
            yield component, executor["container"]


def _iterate_input_artifacts(task: Document) -> Iterator[Document]:
    """Yields the references of a task to other tasks' output artifacts."""
    for artifact in task.get("inputs", {}).get("artifacts", {}).values():
        if "taskOutputArtifact" in artifact:
            yield artifact["taskOutputArtifact"]


def _make_task(name: str, task: Document) -> Document:
    return {"taskInfo": {"name": name}, "componentRef": {"name": name}, **task}


def _add_task(pipeline: Document, name: str, interface: Document, executor: Document, task: Document) -> None:
    label = f"{name}{EXECUTOR}"
    pipeline["components"][name] = {**interface, "executorLabel": label}
    pipeline["deploymentSpec"]["executors"][label] = executor
    _get_tasks(pipeline)[name] = _make_task(name, task)


def _remove_task(pipeline: Document, name: str) -> Document:
    task: Document = _get_tasks(pipeline).pop(name)
    component = pipeline["components"].pop(task["componentRef"]["name"])
    del pipeline["deploymentSpec"]["executors"][component["executorLabel"]]
    return task
