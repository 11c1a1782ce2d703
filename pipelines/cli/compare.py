"""Defines the command `tfx-distribute compare`."""

import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal

import click

from tfx_distribute.pipelines import compare as defaults
from tfx_distribute.pipelines.cli import tables
from tfx_distribute.pipelines.cli.options import FAILED, OUTPUT, PIPELINE, refusing_errors
from tfx_distribute.trainer_module.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfx_distribute.pipelines.compare.combinations import Combination
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
    type=click.IntRange(min=defaults.MIN_TRAIN_STEPS),
    default=defaults.TRAIN_STEPS,
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
    from tfx_distribute.pipelines.compare import combinations as combinations_lib
    from tfx_distribute.pipelines.compare import grid
    from tfx_distribute.pipelines.spec import loader, user_module
    from tfx_distribute.pipelines.targets.local.target import LocalTarget

    with refusing_errors():
        spec = loader.load(pipeline)
        combinations = combinations_lib.make(spec, grid.parse(parameters), train_steps, gpus.list_visible())
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
        document = as_document(spec.name, combinations, train_steps)
        text = tables.to_json(document) if output == "json" else f"\n{as_text(combinations, train_steps)}"
        click.echo(text)
    sys.exit(code)


def _train(combination: "Combination", module: "Module", root: str, output: str) -> "tuple[int, Combination]":
    """Trains a combination; returns the exit code, and the combination completed."""
    from tfx_distribute.components.tuner import trials
    from tfx_distribute.pipelines.cli import console as console_lib
    from tfx_distribute.pipelines.cli import shown_run
    from tfx_distribute.pipelines.compare.measurement import measure
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
    model_run = runs.find([paths.root], paths.run_id).find("ModelRun")
    try:
        measurement = measure(history.read(model_run.uri) if model_run else [])
    except TrainingError as error:
        return FAILED, replace(combination, status="failed", reason=str(error))
    return 0, replace(combination, status="measured", measurement=measurement)


def as_text(combinations: "Sequence[Combination]", train_steps: int) -> str:
    """Formats a comparison as a table and sentences of advice."""
    from tfx_distribute.pipelines.compare import grid
    from tfx_distribute.pipelines.compare.advice import advise
    from tfx_distribute.pipelines.compare.combinations import efficiencies

    columns = ["batch", "examples/s", "efficiency", "input", "peers", "loss"]
    rows = [[*combinations[0].values, *columns]]
    for each, ratio in zip(combinations, efficiencies(combinations), strict=True):
        cells = [each.status, *[""] * (len(columns) - 1)]
        if measured := each.measurement:
            cells = [
                str(measured.batch),
                f"{measured.examples_per_second:,.0f}",
                _format(ratio, ".2f"),
                _format(measured.input_share, ".0%"),
                _format(measured.wait_share, ".0%"),
                _format(measured.loss, ".4g"),
            ]
        rows.append([*map(grid.format_value, each.values.values()), *cells])
    reasons = [f"{each.status}: {each.label}: {each.reason}" for each in combinations if each.reason]
    advice = [f"* {sentence}" for sentence in advise(combinations, train_steps)]
    return "\n\n".join(part for part in (tables.format_table(rows), "\n".join(reasons), "\n".join(advice)) if part)


def as_document(pipeline: str, combinations: "Sequence[Combination]", train_steps: int) -> dict[str, Any]:
    """Returns a comparison as a JSON document, whose keys docs/scaling.md describes."""
    from tfx_distribute.pipelines.compare.advice import advise
    from tfx_distribute.pipelines.compare.combinations import efficiencies
    from tfx_distribute.pipelines.compare.measurement import Measurement

    unknown = dict.fromkeys(field.name for field in fields(Measurement))
    documents = [
        {
            "parameters": dict(each.values),
            "status": each.status,
            "reason": each.reason,
            "processes": each.processes,
            "devices": each.devices,
            "efficiency": ratio,
            **(vars(each.measurement) if each.measurement else unknown),
        }
        for each, ratio in zip(combinations, efficiencies(combinations), strict=True)
    ]
    return {
        "pipeline": pipeline,
        "train_steps": train_steps,
        "combinations": documents,
        "advice": advise(combinations, train_steps),
    }


def _format(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
