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
from tfx_distribute.components.container import BLESSING, RESOLVED_INPUT
from tfx_distribute.components.example_gen.names import LAST_SPAN, SCHEDULED_AT
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS

Document = dict[str, Any]

EXECUTOR = "_executor"  # suffix that TFX adds to a component's name for its executor
ENTRYPOINT = "tfx_distribute.components.container"
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
runpy.run_module("{module}", run_name="__main__", alter_sys=True)
"""
# kfp's dsl.PIPELINE_JOB_SCHEDULE_TIME_UTC_PLACEHOLDER: for a run that was started by
# hand, the time when it was created.
SCHEDULE_TIME = "{{$.pipeline_job_schedule_time_utc}}"
WHOLE = "exit-handler-1"  # kfp's name of a pipeline within one, whose end a step waits for
SCHEMA_VERSION = "0.0.1"  # of `system.` types, as kfp writes it
_TITLE = re.compile(r"^title: (system\.\w+)$", re.MULTILINE)
_TFX_ARGUMENTS = ("--executor_class_path", "--json_serialized_invocation_args", "--json_serialized_inputs_spec_args")


def make_command(module: str, version: str = __version__) -> list[str]:
    """Returns the command of a step: `python -m MODULE`, and a check of the image.

    `version` is that of this package, which the image has to have.
    """
    return ["python", "-c", _START.format(module=module, version=version)]


def restore_order_of_resolvers(pipeline: Document, upstream: Mapping[str, Sequence[str]]) -> None:
    """Restores the order of resolvers and other nodes, which TFX loses.

    Its tasks of a resolver wait for nothing, and what waits for the resolver of the
    latest blessed model waits for a task that is not there: that one has two tasks.
    `upstream` is id of a resolver -> ids of the nodes that it waits for.
    """
    tasks = pipeline["root"]["dag"]["tasks"]
    for node, dependencies in upstream.items():
        task = tasks[_list_tasks_of_resolver(tasks, node)[0]]
        task["dependentTasks"] = [*task.get("dependentTasks", ()), *dependencies]
    last_tasks = {node: _list_tasks_of_resolver(tasks, node)[-1] for node in upstream}
    for task in tasks.values():
        if task.get("dependentTasks"):
            task["dependentTasks"] = sorted({last_tasks.get(name, name) for name in task["dependentTasks"]})


def _list_tasks_of_resolver(tasks: Document, node: str) -> list[str]:
    """Returns its tasks; for the latest blessed model, that of the blessing first."""
    return [name for name in (node, f"{node}-model-blessing-resolver", f"{node}-model-resolver") if name in tasks]


def set_entrypoint(pipeline: Document) -> None:
    """Replaces TFX's entrypoint of each component by ours."""
    for component, container in iterate_tfx_containers(pipeline):
        class_path, beam_args = _split_tfx_arguments(container["args"])
        container["command"] = make_command(ENTRYPOINT)
        container["args"] = [*_make_arguments("execute", class_path, component), *beam_args]


def set_system_types(pipeline: Document) -> None:
    """Declares output artifacts of `system.` types as kfp does.

    TFX declares every type by a schema of its own, and pages show those of `kfp.dsl`.
    """
    for component in pipeline["components"].values():
        for output in component.get("outputDefinitions", {}).get("artifacts", {}).values():
            title = _TITLE.search(output["artifactType"].get("instanceSchema", ""))
            if title:
                output["artifactType"] = {"schemaTitle": title[1], "schemaVersion": SCHEMA_VERSION}


def add_resolved_input(pipeline: Document, name: str, driver: str) -> None:
    """Adds a step before a file-based ExampleGen that inspects the files.

    TFX's driver, whose class has the dotted path `driver`, does this on other
    platforms. The result is a parameter of the ExampleGen, so that changed files change
    the key in Kubeflow's cache.
    """
    task, component, executor = get_step(pipeline, name)
    resolver, container = f"{name}-input", executor["container"]
    container.pop("lifecycle", None)
    string = {"parameterType": "STRING"}
    interface = {
        "inputDefinitions": copy.deepcopy(component["inputDefinitions"]),
        "outputDefinitions": {"parameters": {RESOLVED_INPUT: string}},
    }
    inputs = {"parameters": copy.deepcopy(task["inputs"]["parameters"])}
    if LAST_SPAN in inputs["parameters"]:  # not for the ExampleGen, whose key in the cache it would change
        interface["inputDefinitions"]["parameters"][SCHEDULED_AT] = string
        inputs["parameters"][SCHEDULED_AT] = {"runtimeValue": {"constant": SCHEDULE_TIME}}
    arguments = _make_arguments("resolve-input", driver, interface)
    resolver_container = {"image": container["image"], "command": make_command(ENTRYPOINT), "args": arguments}
    # What makes the files has to be done before they are inspected.
    order = {"dependentTasks": list(task["dependentTasks"])} if task.get("dependentTasks") else {}
    add_task(pipeline, resolver, interface, {"container": resolver_container}, {"inputs": inputs, **order})
    component["inputDefinitions"]["parameters"][RESOLVED_INPUT] = string
    task["inputs"]["parameters"][RESOLVED_INPUT] = {
        "taskOutputParameter": {"producerTask": resolver, "outputParameterKey": RESOLVED_INPUT}
    }
    task["dependentTasks"] = sorted({*task.get("dependentTasks", ()), resolver})


def replace_resolvers(
    pipeline: Document, resolvers: Iterable[str], image: str, metadata_service: str, pipeline_root: str
) -> None:
    """Replaces resolvers of the latest blessed model or artifact by ordinary steps.

    One step asks the metadata store for the address, and an importer makes an
    artifact of it. An importer can only read inputs of its own pipeline, so it gets a
    nested pipeline around it. `resolvers` are ids.
    """
    tasks = pipeline["root"]["dag"]["tasks"]
    for node in resolvers:
        found = _list_tasks_of_resolver(tasks, node)
        last, is_blessed = found[-1], len(found) > 1
        outputs = get_step(pipeline, last)[1]["outputDefinitions"]["artifacts"]
        if len(outputs) > 1:
            raise ConfigurationError(
                f"{node}: Kubeflow Pipelines has no resolvers; only those of the latest blessed model, and of the latest "
                "artifact of one type, are replaced. Make a resolver for each type"
            )
        ((key, artifact_type),) = outputs.items()
        type_name = BLESSING if is_blessed else _read_title(artifact_type["artifactType"])
        dependencies = tasks[found[0]].get("dependentTasks", [])
        for name in found:
            component = pipeline["components"].pop(tasks.pop(name)["componentRef"]["name"])
            del pipeline["deploymentSpec"]["executors"][component["executorLabel"]]
        for task in tasks.values():
            for artifact in task.get("inputs", {}).get("artifacts", {}).values():
                if artifact.get("taskOutputArtifact", {}).get("producerTask") == last:
                    artifact["taskOutputArtifact"]["producerTask"] = f"{node}-import"
            if last in task.get("dependentTasks", ()):
                task["dependentTasks"] = sorted({*task["dependentTasks"], f"{node}-import"} - {last})
        arguments = ["latest-artifact", "--executor-input", "{{$}}", "--metadata-service", metadata_service]
        arguments += ["--pipeline", pipeline["pipelineInfo"]["name"], "--type", type_name]
        # Kubeflow reads a query such as ?region=eu as settings; addresses of artifacts
        # have none.
        arguments += ["--pipeline-root", pipeline_root.partition("?")[0].rstrip("/")]
        step = {"image": image, "command": make_command(ENTRYPOINT), "args": arguments}
        uri = {"outputDefinitions": {"parameters": {"uri": {"parameterType": "STRING"}}}}
        order = {"dependentTasks": dependencies} if dependencies else {}
        add_task(pipeline, node, uri, {"container": step}, order)
        _add_importer(pipeline, node, key, artifact_type)


def _read_title(artifact_type: Document) -> str:
    """Returns the name of an artifact type in Kubeflow's metadata store."""
    return str(artifact_type.get("schemaTitle") or yaml.safe_load(artifact_type["instanceSchema"])["title"])


def _add_importer(pipeline: Document, node: str, key: str, artifact_type: Document) -> None:
    """Adds a pipeline with an importer of the address that a step has found."""
    uri = {"parameters": {"uri": {"parameterType": "STRING"}}}
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
            "tasks": {importer: make_task(importer, {"inputs": {"parameters": importer_parameters}})},
        },
    }
    produced = {"taskOutputParameter": {"producerTask": node, "outputParameterKey": "uri"}}
    task = {"inputs": {"parameters": {"uri": produced}}, "dependentTasks": [node]}
    pipeline["root"]["dag"]["tasks"][nested_pipeline] = make_task(nested_pipeline, task)


def complete_step(
    pipeline: Document,
    name: str,
    resources: Document,
    retry_policy: Document,
    *,
    is_cached: bool,
    trains: bool,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Adds to the task of a component what TFX does not write.

    Empty `resources` (a ResourceSpec) keep those of the component. A task that `trains`
    gets the number of its GPUs: it fails if TensorFlow does not see them.
    """
    task, _, executor = get_step(pipeline, name)
    container, variables = executor["container"], dict(environment or {})
    if resources:
        container["resources"] = resources
    if retry_policy:
        task["retryPolicy"] = retry_policy
    if not is_cached:
        task.pop("cachingOptions", None)
    accelerator = container.get("resources", {}).get("accelerator", {})
    # `nvidia.com/gpu` of Kubernetes, or such as `NVIDIA_L4` of Vertex AI
    if trains and accelerator.get("type", "").lower().startswith("nvidia"):
        variables = {REQUESTED_GPUS: str(accelerator.get("count", 1)), **variables}
    if variables:
        added = [{"name": variable, "value": value} for variable, value in variables.items()]
        container["env"] = [*container.get("env", ()), *added]


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
                    f"{name}: depends on {missing[0]}, which is not in the pipeline; add it to its components, or leave it "
                    "out if it is the blessing of the latest blessed model"
                )


def check(pipeline: Document) -> None:
    """Checks for features that the backend of Kubeflow Pipelines refuses or ignores."""
    check_references(pipeline)
    for name, task, executor in iterate_steps(pipeline):
        uri = executor.get("importer", {}).get("artifactUri", {}).get("constant", "")
        if uri and not uri.startswith(("gs://", "s3://", "minio://", "oci://")):
            raise ConfigurationError(f"{name}: imports {uri!r}, which a cluster cannot read; write a gs:// or s3:// address")
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
        return {
            name: _read_title(each["artifactType"]) for name, each in component.get(key, {}).get("artifacts", {}).items()
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


def get_step(pipeline: Document, name: str) -> tuple[Document, Document, Document]:
    """Returns a task of the pipeline, its component, and its executor."""
    task = pipeline["root"]["dag"]["tasks"][name]
    component = pipeline["components"][task["componentRef"]["name"]]
    return task, component, _get_executor(pipeline, component)


def iterate_steps(pipeline: Document) -> Iterator[tuple[str, Document, Document]]:
    """Yields name, task and executor of each step, in nested pipelines too."""
    for dag in _iterate_dags(pipeline):
        for name, task in dag["tasks"].items():
            yield name, task, _get_executor(pipeline, pipeline["components"][task["componentRef"]["name"]])


def _iterate_dags(pipeline: Document) -> Iterator[Document]:
    yield pipeline["root"]["dag"]
    yield from (component["dag"] for component in pipeline["components"].values() if "dag" in component)


def iterate_tfx_containers(pipeline: Document) -> Iterator[tuple[Document, Document]]:
    """Yields component and container of each step that has TFX's entrypoint."""
    for component in pipeline["components"].values():
        container = _get_executor(pipeline, component).get("container", {})
        if "--executor_class_path" in container.get("args", ()):
            yield component, container


def _get_executor(pipeline: Document, component: Document) -> Document:
    """Returns a component's executor; empty for a nested pipeline."""
    executor: Document = pipeline["deploymentSpec"]["executors"].get(component.get("executorLabel"), {})
    return executor


def make_task(name: str, task: Document) -> Document:
    """Returns a task of the component of the same name."""
    return {"taskInfo": {"name": name}, "componentRef": {"name": name}, **task}


def add_task(pipeline: Document, name: str, interface: Document, executor: Document, task: Document) -> None:
    """Adds a component, its executor, and a task of it."""
    label = f"{name}{EXECUTOR}"
    pipeline["components"][name] = {**interface, "executorLabel": label}
    pipeline["deploymentSpec"]["executors"][label] = executor
    pipeline["root"]["dag"]["tasks"][name] = make_task(name, task)
