"""Defines the command `tfx-distribute`.

Each command imports what it needs when it runs, so that help and checks are fast.
"""

import io
import json
import os
import sys
from typing import Any

import click

from tfx_distribute.pipelines.cli import compare, init, models, notify, remote, runs, schedules, schema, span_runs
from tfx_distribute.pipelines.cli.options import (
    FAILED,
    INTERRUPTED,
    OUTPUT,
    PARAMETER,
    PIPELINE,
    load,
    on_platforms,
    refuse,
    refusing_errors,
    warn,
)
from tfx_distribute.pipelines.cli.terminal import SafeStream
from tfx_distribute.pipelines.targets.local.target import LocalTarget
from tfx_distribute.pipelines.targets.target import Target
from tfx_distribute.trainer_module import tpu_library
from tfx_distribute.trainer_module.errors import ConfigurationError

KFP = ("kfp", "kfp_server_api")  # only extras have it


class Group(click.Group):
    """A group of commands that always end with one message and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a command with streams that accept any text."""
        for name in ("stdout", "stderr"):
            if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
                stream.flush()
                setattr(sys, name, SafeStream(stream))
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in KFP:
                raise
            refuse(
                "the package kfp is not installed, and pipelines for Kubeflow Pipelines and Vertex AI need it; write "
                "`uv pip install '.[kfp]'`, or '.[vertex]', in the checkout of tfx-distribute"
            )
        except BrokenPipeError:  # click ends quietly
            raise
        except OSError as error:
            refuse(f"{error.filename}: {error.strerror}" if error.filename is not None else str(error.strerror or error))


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tfx-distribute")
def main() -> None:
    """Distributed training as a parameter of a TFX pipeline."""
    os.environ.update(tpu_library.NOT_LOADED, KERAS_BACKEND="tensorflow")  # training processes load it


@on_platforms("Platform that the pipeline would run on.", "compile")
@main.command()
@PIPELINE
@PARAMETER
def validate(pipeline: str, parameters: tuple[str, ...], target_class: type[Target[Any]], **options: Any) -> None:
    """Checks a pipeline file, its module and its local data. Runs nothing.

    With --target, checks for that platform instead of this machine: its settings, its
    machines, and that its steps can reach the data.
    """
    target, module = load(pipeline, parameters, target_class, options)
    if target.runs_here:
        notify.warn_if_missing(target.spec)
    else:
        for warning in target.find_warnings():
            warn(warning)
    platform = "" if target.runs_here else f" for {target.title}"
    click.echo(f"{pipeline}: valid{platform} ({target.spec.name}: {module.train} of {module.file})")


@on_platforms("Platform that the pipeline would run on.", "compile")
@main.command()
@PIPELINE
@PARAMETER
@OUTPUT
def plan(pipeline: str, parameters: tuple[str, ...], target_class: type[Target[Any]], output: str, **options: Any) -> None:
    """Shows what a run would do, without starting anything.

    It shows processes and their TF_CONFIG, replicas, batch, steps and warnings. With
    --target, also what the Trainer's step would create there for training: a TFJob, a
    JobSet or a CustomJob.
    """
    target, module = load(pipeline, parameters, target_class, options)
    from pydantic_core import to_json

    from tfx_distribute.pipelines import run_plan as plan_lib

    with refusing_errors():
        run_plan = plan_lib.make_plan(target.spec, module, target)
    click.echo(to_json(run_plan, indent=2).decode() if output == "json" else plan_lib.as_text(run_plan))


@main.command("json-schema")
def json_schema() -> None:
    """Prints the JSON Schema of pipeline files, for editors."""
    from tfx_distribute.pipelines.spec.pipeline import PipelineSpec

    document = PipelineSpec.model_json_schema()
    click.echo(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **document}, indent=2))


@main.command()
@PIPELINE
@PARAMETER
@click.option("--root", type=click.Path(file_okay=False), help="Folder for everything that the run writes.")
@click.option("--no-cache", is_flag=True, help="Run every component, even if an earlier run has its outputs.")
@click.option("--if-new", is_flag=True, help="End at once with exit code 0 if an earlier run has read the newest span.")
@click.option("--backfill", metavar="FIRST..LAST", help="Run once for each span, such as 2026-11-01..2026-11-25.")
def run(
    pipeline: str,
    parameters: tuple[str, ...],
    root: str | None,
    no_cache: bool,
    if_new: bool,
    backfill: str | None,
) -> None:
    """Runs a pipeline on this machine.

    Exit code 0: the pipeline ran, and its model met its thresholds. 1: a component
    failed. 2: the pipeline cannot be run as it is written. 3: the pipeline ran, but its
    model did not meet its thresholds and was not pushed. 4: the data were rejected, and
    nothing was trained. 130, 143: it was ended by
    Ctrl-C or SIGTERM; training, if it was running, has saved its state.
    """
    if backfill:
        if ".." not in backfill:
            refuse(f"--backfill: {backfill} is not a range; write FIRST..LAST, e.g. 2026-11-01..2026-11-25")
        if if_new or any(parameter.startswith("span=") for parameter in parameters):
            refuse("--backfill: sets the span of each run; leave out --if-new and -p span")
        parameters = (*parameters, f"span={backfill.rpartition('..')[2]}")
    target, module = load(pipeline, parameters, LocalTarget, {"root": root}, notify.refuse_run)
    spec, paths = target.spec, target.paths
    if backfill:
        sys.exit(span_runs.run_each(spec.data, backfill))
    if if_new and (found := span_runs.find_run_of_newest(spec.data, paths.root)):
        click.echo(f"no new span: {found}")
        return
    from tfx_distribute.pipelines.cli import console as console_lib
    from tfx_distribute.pipelines.cli import shown_run
    from tfx_distribute.pipelines.notify.message import Ending
    from tfx_distribute.trainer_module.liveness import exit_codes

    notify.warn_if_missing(spec)
    try:
        paths.create()
    except ConfigurationError as error:
        notify.refuse_run(spec, str(error))
    with console_lib.showing_run(spec, paths) as console:
        ending = Ending(FAILED)
        try:
            ending = shown_run.run_to_end(spec, module, paths, console, not no_cache)
            if ending.code in (INTERRUPTED, exit_codes.PREEMPTED):
                console.print(
                    "Interrupted. The same command continues after the last component that finished and the last saved step."
                )
        except Exception as error:
            ending = Ending(FAILED, f"{type(error).__name__}: {error}")
            raise
        finally:
            notify.tell_end(spec, paths, console, ending)
    sys.exit(ending.code)


for command in (
    init.init,
    compare.compare,
    runs.report,
    runs.runs,
    models.models,
    notify.notify,
    schema.schema,
    schedules.schedules,
    remote.compile_,
    remote.submit,
):
    main.add_command(command)
