"""The command `tfx-distribute`. Each command imports what it needs when it runs, so that help and checks answer at once."""

import contextlib
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfx_distribute.pipelines.runners.kubeflow import Package
    from tfx_distribute.pipelines.spec import PipelineSpec
    from tfx_distribute.pipelines.user_module import Module

FAILED = 1
INVALID = 2  # click's own code for a wrong command line
NOT_BLESSED = 3
INTERRUPTED = 130  # as shells have it: 128 and the signal

PARAMETER = click.option(
    "-p",
    "--parameter",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a pipeline parameter or hyperparameter. May be repeated.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tfx-distribute")
def main() -> None:
    """Distributed training as a parameter of a TFX pipeline."""


@main.command()
@click.argument("pipeline", type=click.Path())
@PARAMETER
def validate(pipeline: str, given: tuple[str, ...]) -> None:
    """Checks a pipeline file, its module and its local data, without running anything."""
    spec, module = _load(pipeline, given)
    click.echo(f"{pipeline}: valid ({spec.name}: {module.train} of {module.file})")


@main.command()
@click.argument("pipeline", type=click.Path())
@PARAMETER
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="For whom.")
def plan(pipeline: str, given: tuple[str, ...], output: str) -> None:
    """Shows what a run would be: processes and their TF_CONFIG, replicas, batch, steps, warnings. Starts nothing."""
    spec, module = _load(pipeline, given)
    from tfx_distribute.pipelines import plan as plan_lib
    from tfx_distribute.trainer_module.errors import ConfigurationError

    try:
        made = plan_lib.make_plan(spec, module)
    except ConfigurationError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(INVALID)
    if output == "json":
        import dataclasses
        import json

        click.echo(json.dumps(dataclasses.asdict(made), indent=2))
    else:
        from tfx_distribute.pipelines.plan_text import as_text

        click.echo(as_text(made))


@main.command()
def schema() -> None:
    """Prints the JSON Schema of pipeline files, for editors."""
    import json

    from tfx_distribute.pipelines.spec import PipelineSpec

    document = PipelineSpec.model_json_schema()
    click.echo(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **document}, indent=2))


@main.command()
@click.argument("pipeline", type=click.Path())
@PARAMETER
@click.option("--root", type=click.Path(file_okay=False), help="Folder for everything that the run writes.")
@click.option("--no-cache", is_flag=True, help="Run every node, whatever an earlier run has.")
@click.option("-v", "--verbose", is_flag=True, help="Show what TFX, Beam and TensorFlow log.")
def run(pipeline: str, given: tuple[str, ...], root: str | None, no_cache: bool, verbose: bool) -> None:
    """Runs a pipeline on this machine.

    Exit code 0: the pipeline ran, and its model met its thresholds. 1: a node failed. 2: the pipeline cannot be run as it
    is written. 3: the pipeline ran, but its model did not meet its thresholds and was not pushed. 130, 143: it was ended by
    Ctrl-C or SIGTERM; training, if it was going on, has saved its state.
    """
    spec, module = _load(pipeline, given)
    from tfx_distribute.pipelines import console as console_lib
    from tfx_distribute.pipelines import places as places_lib
    from tfx_distribute.trainer_module.errors import ConfigurationError

    places = places_lib.local_places(spec, root)
    with console_lib.output_to(places.log, verbose) as console:
        console.print(console_lib.header(spec))
        code = FAILED
        try:
            code = _run(spec, module, places, console, enable_cache=not no_cache)
        except ConfigurationError as error:
            console.print(f"Error: {error}", style="red", markup=False)
            code = INVALID
        except KeyboardInterrupt as interrupt:
            from tfx_distribute.components.launchers.termination import TerminatedError
            from tfx_distribute.trainer_module import exit_codes

            console.print("Interrupted. The same command goes on after the last node that was done and the last saved step.")
            code = exit_codes.PREEMPTED if isinstance(interrupt, TerminatedError) else INTERRUPTED
        finally:
            console.print(f"log      {places.log}")
    sys.exit(code)


TARGET = click.option(
    "--target", type=click.Choice(["kubeflow"]), default="kubeflow", show_default=True, help="Where the pipeline is to run."
)


@main.command("compile")
@click.argument("pipeline", type=click.Path())
@TARGET
@PARAMETER
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File to write; default NAME.yaml.")
@click.option("--no-cache", is_flag=True, help="Have every step run, whatever an earlier run has.")
def compile_(pipeline: str, target: str, given: tuple[str, ...], output: str | None, no_cache: bool) -> None:
    """Compiles a pipeline for a cluster. Nothing is sent anywhere.

    The file holds the pipeline and, in a second document, where its steps run; `kfp` takes it as it is. Values given with -p
    become the defaults of pipeline parameters.
    """
    spec, module = _load(pipeline, given, target)
    path = output or f"{spec.name}.yaml"
    package = _compiled(spec, module, enable_cache=not no_cache)
    try:
        with click.open_file(path, "w", encoding="utf-8", atomic=True) as file:
            file.write(package.to_yaml())
    except OSError as error:
        click.echo(f"Error: cannot write {path}: {error.strerror}", err=True)
        sys.exit(INVALID)
    click.echo(f"{path}: {spec.name}, {len(package.pipeline['root']['dag']['tasks'])} steps")


@main.command()
@click.argument("pipeline", type=click.Path())
@TARGET
@PARAMETER
@click.option("--host", help="Address of the Kubeflow Pipelines API; default targets.kubeflow.host, or what kfp finds.")
@click.option(
    "-n", "--namespace", help="Namespace of runs, where there are several users; default targets.kubeflow.namespace."
)
@click.option("--experiment", "--experiment-name", help="Experiment; default targets.kubeflow.experiment.")
@click.option("--run-name", help="Name of the run; default the pipeline's, and the time.")
@click.option("--service-account", help="Kubernetes service account of the run; default targets.kubeflow.service_account.")
@click.option("--iap-client-id", help="Client id of Identity-Aware Proxy.")
@click.option("--other-client-id", help="Client id that auth codes are obtained with.")
@click.option("--other-client-secret", envvar="KFP_OTHER_CLIENT_SECRET", help="Its secret; or in $KFP_OTHER_CLIENT_SECRET.")
@click.option("--existing-token", envvar="KFP_EXISTING_TOKEN", help="A token; or in $KFP_EXISTING_TOKEN.")
@click.option("--no-cache", is_flag=True, help="Have every step run, whatever an earlier run has.")
@click.option("--wait", is_flag=True, help="Follow the run to its end.")
def submit(pipeline: str, target: str, given: tuple[str, ...], no_cache: bool, wait: bool, **options: str | None) -> None:
    """Compiles a pipeline, uploads it and runs it.

    Exit code 0: it was submitted; with --wait, the run succeeded. 1: the run failed or was cancelled. 2: it cannot be
    submitted as it is written. 130: Ctrl-C ended the waiting; the run goes on.
    """
    spec, module = _load(pipeline, given, target)
    from tfx_distribute.pipelines import kubeflow_target

    spec = kubeflow_target.with_service_account(spec, options["service_account"])
    kubeflow = kubeflow_target.checked(spec)
    package = _compiled(spec, module, enable_cache=not no_cache)
    from tfx_distribute.pipelines import kfp_client
    from tfx_distribute.trainer_module.errors import ConfigurationError

    login = kfp_client.Login(
        options["host"] or kubeflow.host,
        options["namespace"] or kubeflow.namespace,
        options["iap_client_id"],
        options["other_client_id"],
        options["other_client_secret"],
        options["existing_token"],
    )
    try:
        installation = kfp_client.Pipelines(login)
        submitted = installation.submit(
            spec.name,
            package.to_yaml(),
            _arguments(spec, given),
            kubeflow.pipeline_root,
            options["experiment"] or kubeflow.experiment,
            options["run_name"],
            kubeflow.service_account,
        )
        click.echo(f"run      {submitted.address}")
        if wait:
            state = installation.wait(submitted.run_id, click.echo)
            click.echo(f"ended    {state.lower()}")
            sys.exit(0 if state in kfp_client.WELL else FAILED)
    except ConfigurationError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(INVALID)
    except KeyboardInterrupt:
        click.echo("Not waiting any longer; the run goes on.")
        sys.exit(INTERRUPTED)


@main.command()
@click.option("--namespace", default="kubeflow", show_default=True, help="Namespace of runs.")
@click.option(
    "--service-account", default="pipeline-runner", show_default=True, help="Service account of runs, which steps act as."
)
def manifests(namespace: str, service_account: str) -> None:
    """Prints what the Trainer's step has to be allowed, for `kubectl apply -f -`: a Role and its RoleBinding."""
    from tfx_distribute.pipelines import rbac

    click.echo(rbac.as_yaml(namespace, service_account), nl=False)


def _arguments(spec: "PipelineSpec", given: tuple[str, ...]) -> "dict[str, int | float | str]":
    """What was given with -p, as the run's own arguments: they are its defaults too, but people look for them there."""
    from tfx_distribute.pipelines import graph, loader

    names = {name if name not in spec.trainer.hparams else "hparams" for name in loader.parse_parameters(given)}
    return {name: value for name, value in graph.parameter_values(spec).items() if name in names}


def _compiled(spec: "PipelineSpec", module: "Module", enable_cache: bool) -> "Package":
    """Compiles; ends the program where that cannot be."""
    from tfx_distribute.trainer_module.errors import ConfigurationError

    with _quiet():
        from tfx_distribute.pipelines.runners import kubeflow as runner

        try:
            return runner.compile_spec(spec, module, enable_cache)
        except ConfigurationError as error:
            message = str(error)
    click.echo(f"Error: {message}", err=True)
    sys.exit(INVALID)


@contextlib.contextmanager
def _quiet() -> "Iterator[None]":
    """Keeps what TensorFlow and TFX say while they are imported off the terminal."""
    import os
    import warnings

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _run(spec: "PipelineSpec", module: "Module", places, console, enable_cache: bool) -> int:  # type: ignore[no-untyped-def]
    from tfx_distribute.components.launchers.fork_server import ForkServer
    from tfx_distribute.pipelines import console as console_lib

    # It imports TensorFlow while this process imports TFX and runs the nodes before the Trainer.
    with ForkServer(places.logs / "fork-server.log", spec.trainer.parameters.keras_version) as server:
        from tfx_distribute.pipelines import failures
        from tfx_distribute.pipelines.runners import local

        with console_lib.RunView(console) as view:

            def on_node(event: local.NodeStarted | local.NodeEnded) -> None:
                if isinstance(event, local.NodeStarted):
                    view.node_started(event.node)
                else:
                    view.node_ended(event.node, event.seconds, event.cached)

            try:
                result = local.run(spec, module, places, server, enable_cache, on_node, view.training)
            except local.NodeError as error:
                view.node_failed(error.node)
                message = failures.explain(error.__cause__ or error, module.file.parent)
                console.print(message, markup=False, style="red")
                return FAILED
        console.print(console_lib.summary(result))
        return NOT_BLESSED if result.blessed is False else 0


def _load(pipeline: str, given: tuple[str, ...], target: str = "") -> "tuple[PipelineSpec, Module]":
    """Reads and checks all that can be known before anything heavy is imported; ends the program where it is wrong."""
    from tfx_distribute.pipelines import loader, preflight, user_module
    from tfx_distribute.trainer_module.errors import ConfigurationError

    try:
        spec = loader.override(loader.load(pipeline), loader.parse_parameters(given))
        module = user_module.find(spec)
        if target == "kubeflow":
            from tfx_distribute.pipelines import kubeflow_target

            kubeflow_target.checked(spec)
        else:
            preflight.check_data(spec)
    except ConfigurationError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(INVALID)
    return spec, module
