"""The commands of `tfx-distribute` for pipelines that run elsewhere: compile, submit, manifests."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from tfx_distribute.pipelines.cli.options import FAILED, INTERRUPTED, PARAMETER, PIPELINE, load, quiet, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfx_distribute.pipelines.runners.kubeflow import compiler as kubeflow_compiler
    from tfx_distribute.pipelines.runners.vertex import compiler as vertex_compiler
    from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
    from tfx_distribute.pipelines.spec.user_module import Module

SUFFIX = {"kubeflow": ".yaml", "vertex": ".json"}  # what their clients take
TARGET = click.option("--target", type=click.Choice(list(SUFFIX)), required=True, help="Where the pipeline is to run.")
PROJECT = click.option("--project", help="Vertex AI: Google Cloud project; default targets.vertex.project.")
REGION = click.option("--region", help="Vertex AI: Google Cloud region; default targets.vertex.region.")


@click.command("compile")
@PIPELINE
@TARGET
@PARAMETER
@PROJECT
@REGION
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File to write; default NAME.yaml or NAME.json.")
@click.option("--no-cache", is_flag=True, help="Have every step run, whatever an earlier run has.")
def compile_(
    pipeline: str, target: str, given: tuple[str, ...], output: str | None, no_cache: bool, **options: str | None
) -> None:
    """Compiles a pipeline for a cluster. Nothing is sent anywhere.

    For Kubeflow the file is YAML: the pipeline and, in a second document, where its steps run. For Vertex AI it is the JSON
    of a pipeline job. The clients of both take it as it is. Values given with -p become the defaults of pipeline parameters.
    """
    _check_options(target, options)
    spec, module = load(pipeline, given, target, **options)
    path = output or f"{spec.name}{SUFFIX[target]}"
    package = _compiled(spec, module, target, enable_cache=not no_cache)
    # A new file takes the place of an old one, but never that of a device such as /dev/null.
    atomic = os.path.isfile(path) or not os.path.exists(path)
    try:
        with click.open_file(path, "w", encoding="utf-8", atomic=atomic) as file:
            file.write(package.to_text())
    except OSError as error:
        refuse(f"cannot write {path}: {error.strerror}")
    click.echo(f"{path}: {spec.name}, {package.num_steps} steps", err=path == "-")


@click.command()
@PIPELINE
@TARGET
@PARAMETER
@click.option("--service-account", help="Service account of the run; default that of the target.")
@click.option("--experiment", "--experiment-name", help="Experiment; default targets.kubeflow.experiment.")
@click.option("--run-name", "--display-name", help="Name of the run; default the pipeline's, and the time.")
@click.option("--pipeline-root", help="Address that artifacts are written under; default that of the target.")
@click.option("--no-cache", is_flag=True, help="Have every step run, whatever an earlier run has.")
@click.option("--wait", is_flag=True, help="Follow the run to its end.")
@click.option("--host", help="Kubeflow: address of its API; default targets.kubeflow.host, or what kfp finds.")
@click.option("-n", "--namespace", help="Kubeflow: namespace of runs, where there are several users.")
@click.option("--iap-client-id", help="Kubeflow: client id of Identity-Aware Proxy.")
@click.option("--other-client-id", help="Kubeflow: client id that auth codes are obtained with.")
@click.option("--other-client-secret", envvar="KFP_OTHER_CLIENT_SECRET", help="Its secret; or in $KFP_OTHER_CLIENT_SECRET.")
@click.option("--existing-token", envvar="KFP_EXISTING_TOKEN", help="Kubeflow: a token; or in $KFP_EXISTING_TOKEN.")
@PROJECT
@REGION
@click.option("--network", help="Vertex AI: network to be peered with, projects/NUMBER/global/networks/NAME.")
@click.option("--encryption-spec-key-name", help="Vertex AI: Cloud KMS key of all that is kept.")
@click.option("--job-id", help="Vertex AI: id of the job; default the pipeline's name and the time.")
@click.option("--labels", multiple=True, metavar="KEY=VALUE", help="Vertex AI: a label of the run. May be repeated.")
@click.option("--cron", help="Vertex AI: run it again and again, such as 'TZ=Europe/Zurich 0 3 * * 1-5'.")
@click.option("--start-time", help="Vertex AI: first time of --cron, RFC 3339.")
@click.option("--end-time", help="Vertex AI: last time of --cron, RFC 3339.")
@click.option("--max-run-count", type=click.IntRange(1), help="Vertex AI: runs of --cron in all.")
@click.option("--max-concurrent-run-count", type=click.IntRange(1), help="Vertex AI: runs of --cron at a time; default 1.")
def submit(
    pipeline: str,
    target: str,
    given: tuple[str, ...],
    no_cache: bool,
    wait: bool,
    service_account: str | None,
    pipeline_root: str | None,
    **options: Any,
) -> None:
    """Compiles a pipeline, uploads it and runs it.

    Exit code 0: it was submitted; with --wait, the run succeeded. 1: the run failed or was cancelled. 2: it cannot be
    submitted as it is written. 130: Ctrl-C ended the waiting; the run goes on.
    """
    _check_options(target, {**options, "wait": wait})
    settings = {"service_account": service_account, "pipeline_root": pipeline_root}
    for name in _SETTINGS[target]:
        settings[name] = options[name]
    spec, module = load(pipeline, given, target, **settings)
    package = _compiled(spec, module, target, enable_cache=not no_cache)
    from tfx_distribute.trainer_module.errors import ConfigurationError

    to = _to_vertex if target == "vertex" else _to_kubeflow
    try:
        ended_well = to(spec, package.to_text(), _arguments(spec, given), options, wait)
    except ConfigurationError as error:
        refuse(str(error))
    except KeyboardInterrupt:
        click.echo("Not waiting any longer; the run goes on.")
        sys.exit(INTERRUPTED)
    sys.exit(0 if ended_well else FAILED)


# Options that are settings of the target too, and those that only one has.
_SETTINGS = {
    "kubeflow": ("host", "namespace", "experiment"),
    "vertex": ("project", "region", "network", "encryption_spec_key_name"),
}
_SCHEDULE = ("start_time", "end_time", "max_run_count", "max_concurrent_run_count")
_ONLY = {
    "kubeflow": ("host", "namespace", "iap_client_id", "other_client_id", "other_client_secret", "existing_token"),
    "vertex": (*_SETTINGS["vertex"], "job_id", "labels", "cron", *_SCHEDULE),
}


def _check_options(target: str, options: "Mapping[str, Any]") -> None:
    """Refuses options that another target has, as far as they were written."""
    source = click.get_current_context().get_parameter_source
    for other, names in _ONLY.items():
        for name in names:
            if other != target and options.get(name) and source(name) is click.core.ParameterSource.COMMANDLINE:
                refuse(f"--{name.replace('_', '-')}: goes with --target {other}, not with --target {target}")
    if options.get("cron") is not None:
        for name in ("wait", "experiment", "job_id"):
            if options.get(name):
                refuse(f"--{name.replace('_', '-')}: is of one run, and --cron makes a schedule; leave one of them out")
    if options.get("cron") is None:
        for name in _SCHEDULE:
            if options.get(name) is not None:
                refuse(f"--{name.replace('_', '-')}: is of a schedule; write --cron too")


def _to_kubeflow(
    spec: "PipelineSpec", package: str, arguments: dict[str, Any], options: "Mapping[str, Any]", wait: bool
) -> bool:
    """Runs it on Kubeflow Pipelines; returns whether it ended well, as far as that is waited for."""
    from tfx_distribute.pipelines.runners.kubeflow import client as kubeflow_client
    from tfx_distribute.pipelines.runners.kubeflow.target import validate_target

    target = validate_target(spec)
    login = kubeflow_client.Login(
        target.host,
        target.namespace,
        options["iap_client_id"],
        options["other_client_id"],
        options["other_client_secret"],
        options["existing_token"],
    )
    installation = kubeflow_client.Pipelines(login)
    run = kubeflow_client.Run(
        name=spec.name,
        document=package,
        pipeline_root=target.pipeline_root,
        arguments=arguments,
        display_name=options["run_name"],
        experiment=target.experiment,
        service_account=target.service_account,
    )
    submitted = installation.submit(run)
    click.echo(f"run      {submitted.address}")
    if not wait:
        return True
    state = installation.wait(submitted.id, click.echo)
    click.echo(f"ended    {state}")
    return state in kubeflow_client.SUCCESS_STATES


def _to_vertex(
    spec: "PipelineSpec", package: str, arguments: dict[str, Any], options: "Mapping[str, Any]", wait: bool
) -> bool:
    """Runs it on Vertex AI; returns whether it ended well, as far as that is waited for."""
    from tfx_distribute.pipelines.runners.vertex import client as vertex_client
    from tfx_distribute.pipelines.runners.vertex.target import validate_target

    run = vertex_client.Run(
        name=spec.name,
        document=package,
        arguments=arguments,
        display_name=options["run_name"],
        job_id=options["job_id"],
        experiment=options["experiment"],
        labels=_labels(options["labels"]),
    )
    pipelines = vertex_client.Pipelines(validate_target(spec))
    if options["cron"]:
        given = {name: options[name] for name in _SCHEDULE if options[name] is not None}
        schedule = pipelines.schedule(run, vertex_client.Schedule(options["cron"], **given))
        click.echo(f"schedule {schedule.address}")
        return True
    submitted = pipelines.submit(run)
    click.echo(f"run      {submitted.address}")
    if not wait:
        return True
    state = pipelines.wait(submitted.id, click.echo)
    click.echo(f"ended    {state}")
    return state in vertex_client.SUCCESS_STATES


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    for label in given:
        if "=" not in label:
            refuse(f"--labels: {label!r} is no label; write KEY=VALUE")
    return dict(label.split("=", 1) for label in given)


@click.command()
@click.option("--namespace", default="kubeflow", show_default=True, help="Namespace of runs.")
@click.option(
    "--service-account", default="pipeline-runner", show_default=True, help="Service account of runs, which steps act as."
)
def manifests(namespace: str, service_account: str) -> None:
    """Prints what the Trainer's step has to be allowed, for `kubectl apply -f -`: a Role and its RoleBinding."""
    from tfx_distribute.pipelines.runners.kubeflow import rbac

    click.echo(rbac.make_manifests_yaml(namespace, service_account), nl=False)


def _arguments(spec: "PipelineSpec", given: tuple[str, ...]) -> dict[str, Any]:
    """What was given with -p, as the run's own arguments: they are its defaults too, but people look for them there."""
    from tfx_distribute.pipelines.runners import tfx_pipeline
    from tfx_distribute.pipelines.spec import loader

    names = {name if name not in spec.trainer.hparams else "hparams" for name in loader.parse_parameters(given)}
    return {name: value for name, value in tfx_pipeline.get_parameter_values(spec).items() if name in names}


def _compiled(
    spec: "PipelineSpec", module: "Module", target: str, enable_cache: bool
) -> "kubeflow_compiler.Package | vertex_compiler.Package":
    """Compiles; ends the program where that cannot be."""
    from tfx_distribute.trainer_module.errors import ConfigurationError

    with quiet():
        from tfx_distribute.pipelines.runners.kubeflow import compiler as kubeflow_compiler
        from tfx_distribute.pipelines.runners.vertex import compiler as vertex_compiler

        compile_spec = vertex_compiler.compile_spec if target == "vertex" else kubeflow_compiler.compile_spec
        try:
            return compile_spec(spec, module, enable_cache)
        except ConfigurationError as error:
            message = str(error)
    refuse(message)
