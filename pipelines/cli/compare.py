"""Defines the command `tfx-distribute compare`."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import click

from tfx_distribute.pipelines.cli.options import FAILED, OUTPUT, PIPELINE, calm, refusing_errors
from tfx_distribute.trainer_module.errors import TrainingError

if TYPE_CHECKING:
    from tfx_distribute.pipelines.compare import Combination
    from tfx_distribute.pipelines.spec.user_module import Module


@click.command()
@PIPELINE
@click.option(
    "-p",
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE,VALUE",
    help="Values of a pipeline parameter or hyperparameter to compare, e.g. num_workers=1,2,4. May be repeated; "
    "all combinations are trained.",
)
@click.option(
    "--train-steps",
    type=click.IntRange(min=2),  # one for the warm-up, one to measure
    default=200,
    show_default=True,
    help="Training steps of each combination.",
)
@OUTPUT
@click.option("--root", type=click.Path(file_okay=False), help="Folder of all runs of the pipeline.")
def compare(pipeline: str, parameters: tuple[str, ...], train_steps: int, output: str, root: str | None) -> None:
    """Measures how training scales on this machine, and says what to change.

    Runs the pipeline with all combinations of the values of -p for some training steps,
    one after another, without evaluating and pushing. Shows their speed, scaling
    efficiency, waits and loss, and gives advice.

    Exit code 0: all combinations that can be trained were measured. 1: one of them
    failed, or a component before the Trainer. 2: nothing was trained, because a value
    cannot be. 130, 143: it was ended by Ctrl-C or SIGTERM; what was measured before is
    shown.
    """
    from tfx_distribute.components.launchers.local import gpus
    from tfx_distribute.pipelines import compare as compare_lib
    from tfx_distribute.pipelines.cli import compare_report, tables
    from tfx_distribute.pipelines.spec import loader, user_module
    from tfx_distribute.pipelines.targets.local.target import LocalTarget

    with refusing_errors():
        spec = loader.load(pipeline)
        combinations = compare_lib.make(spec, compare_lib.parse(parameters), train_steps, gpus.list_visible())
        first = next(each.spec for each in combinations if not each.reason)
        folder = str(LocalTarget(first, {"root": root}).paths.root / "compare")
        module = user_module.find(first)
    code = 0
    for index, combination in enumerate(combinations):
        title = f"{index + 1} {combination.label}"
        if combination.reason:
            click.echo(f"{title}: skipped: {combination.reason}", err=output == "json")
            continue
        click.echo(title, err=output == "json")
        ending, combinations[index] = _train(combination, module, folder, output)
        if combinations[index].status == "failed":
            code = FAILED
        elif ending:
            code = ending
            break
    if any(each.status in ("measured", "failed") for each in combinations):
        document = compare_report.as_document(spec.name, combinations, train_steps)
        text = tables.to_json(document) if output == "json" else f"\n{compare_report.as_text(combinations, train_steps)}"
        click.echo(text)
    sys.exit(code)


def _train(combination: "Combination", module: "Module", root: str, output: str) -> "tuple[int, Combination]":
    """Trains a combination; returns the exit code, and the combination completed."""
    from tfx_distribute.components.tuner import trials
    from tfx_distribute.pipelines.cli import console as console_lib
    from tfx_distribute.pipelines.cli import shown_run
    from tfx_distribute.pipelines.compare import measure
    from tfx_distribute.pipelines.targets.local import paths as paths_lib
    from tfx_distribute.pipelines.targets.local import runs
    from tfx_distribute.trainer_module.reporting import history

    with refusing_errors():
        paths = paths_lib.run_paths(combination.spec, root)
        # Of its own, so that it is trained again, and from the first step.
        paths = replace(paths, checkpoints=paths.logs / "checkpoints")
        paths.create()
    with console_lib.showing_run(combination.spec, paths, to_stderr=output == "json") as console:
        ending = shown_run.run_to_end(combination.spec, module, paths, console)
    if ending.code:
        status: Literal["failed", "not run"] = "failed" if ending.reason.startswith("Trainer: ") else "not run"
        return ending.code, replace(combination, status=status, reason=trials.shorten(ending.reason))
    with calm():
        model_run = runs.find([paths.root], paths.run_id).find("ModelRun")
    try:
        measurement = measure(history.read(model_run.uri) if model_run else [])
    except TrainingError as error:
        return FAILED, replace(combination, status="failed", reason=str(error))
    return 0, replace(combination, status="measured", measurement=measurement)
