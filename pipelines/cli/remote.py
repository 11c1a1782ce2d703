"""Defines the commands for pipelines that run elsewhere: compile and submit."""

import sys
from typing import TYPE_CHECKING, Any

import click

from tfx_distribute.pipelines.cli.options import (
    FAILED,
    INTERRUPTED,
    PARAMETER,
    PIPELINE,
    calm,
    load,
    on_platforms,
    refusing_errors,
)

if TYPE_CHECKING:
    from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
    from tfx_distribute.pipelines.spec.user_module import Module
    from tfx_distribute.pipelines.targets.target import Package, RemoteTarget


@on_platforms("Platform that the pipeline runs on.", "compile", remote_only=True)
@click.command("compile")
@PIPELINE
@PARAMETER
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File to write; default NAME.yaml or NAME.json.")
@click.option("--no-cache", is_flag=True, help="Run every step, even if an earlier run has its outputs.")
def compile_(
    pipeline: str,
    target_class: "type[RemoteTarget[Any]]",
    parameters: tuple[str, ...],
    output: str | None,
    no_cache: bool,
    **options: Any,
) -> None:
    """Compiles a pipeline for a cluster. Nothing is sent anywhere.

    For Kubeflow the file is YAML: the pipeline and, in a second document, where its
    steps run. For Vertex AI it is the JSON of a pipeline job. The clients of both
    accept it as it is. Values given with -p become the defaults of pipeline parameters.
    """
    target, module = load(pipeline, parameters, target_class, options)
    path = output or f"{target.spec.name}{target.suffix}"
    package = _compile(target, module, enable_cache=not no_cache)
    with click.open_file(path, "w", encoding="utf-8") as file:
        file.write(package.to_text())
    click.echo(f"{path}: {target.spec.name}, {package.num_steps} steps", err=path == "-")


@on_platforms("Platform that the pipeline runs on.", "place", "submit", remote_only=True)
@click.command()
@PIPELINE
@PARAMETER
@click.option("--service-account", help="Service account that the run acts as; default targets.TARGET.service_account.")
@click.option(
    "--experiment", "--experiment-name", help="Experiment that the run belongs to; default targets.kubeflow.experiment."
)
@click.option(
    "--run-name",
    "--display-name",
    help="Name of the run, as people see it; default the pipeline's name, on Kubeflow with the time.",
)
@click.option("--pipeline-root", help="Address that artifacts are written under; default targets.TARGET.pipeline_root.")
@click.option("--no-cache", is_flag=True, help="Run every step, even if an earlier run has its outputs.")
@click.option("--wait", is_flag=True, help="Follow the run to its end, and print the state of each step.")
def submit(
    pipeline: str,
    target_class: "type[RemoteTarget[Any]]",
    parameters: tuple[str, ...],
    no_cache: bool,
    wait: bool,
    **options: Any,
) -> None:
    """Compiles a pipeline, uploads it and runs it.

    Exit code 0: it was submitted; with --wait, the run succeeded. 1: the run failed or
    was cancelled. 2: it cannot be submitted as it is written. 130: Ctrl-C ended the
    waiting; the run goes on.
    """
    target, module = load(pipeline, parameters, target_class, options)
    package = _compile(target, module, enable_cache=not no_cache)
    try:
        with refusing_errors():
            succeeded = target.submit(package, _arguments(target.spec, parameters), wait, click.echo)
    except KeyboardInterrupt:
        click.echo("Not waiting any longer; the run goes on.")
        sys.exit(INTERRUPTED)
    sys.exit(0 if succeeded else FAILED)


def _arguments(spec: "PipelineSpec", parameters: tuple[str, ...]) -> dict[str, Any]:
    """Returns the parameters given with -p, so that the platform shows them as well."""
    from tfx_distribute.pipelines.spec import loader
    from tfx_distribute.pipelines.targets import tfx_pipeline

    names = {name if name not in spec.trainer.hparams else "hparams" for name in loader.parse_parameters(parameters)}
    return {name: value for name, value in tfx_pipeline.get_parameter_values(spec).items() if name in names}


def _compile(target: "RemoteTarget[Any]", module: "Module", enable_cache: bool) -> "Package":
    """Compiles a pipeline and prints warnings, or ends the program."""
    with calm(show_log=True):  # it warns of files that do not count as part of the module
        package = target.compile(module, enable_cache)
    for warning in (*target.find_warnings(), *(package.warnings if enable_cache else ())):
        click.echo(f"warning: {warning}", err=True)
    return package
