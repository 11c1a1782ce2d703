"""Defines the command `tfx-distribute compare`."""

import json
import math
import sys
from typing import TYPE_CHECKING

import click

from tfx_distribute.pipelines import compare as defaults
from tfx_distribute.pipelines.cli import shell
from tfx_distribute.pipelines.cli.options import FAILED, INTERRUPTED, INVALID, PIPELINE, refuse
from tfx_distribute.trainer_module.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from tfx_distribute.pipelines.compare.combinations import Combination, Scaling
    from tfx_distribute.pipelines.compare.comparison import Outcome
    from tfx_distribute.pipelines.spec.user_module import Module
    from tfx_distribute.pipelines.targets.local.paths import RunPaths


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
@click.option(
    "--scaling",
    type=click.Choice(["weak", "strong"]),
    default="weak",
    show_default=True,
    help="Whether the batch of a replica stays the same (weak), or the global batch (strong).",
)
@click.option(
    "--target-loss", type=float, help="Compare the time to this training loss. Default: the best one that all reach."
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format.")
@click.option("--root", type=click.Path(file_okay=False), help="Folder of all runs of the pipeline.")
@click.option("-v", "--verbose", is_flag=True, help="Show the logs of TFX, Beam and TensorFlow.")
def compare(
    pipeline: str,
    parameters: tuple[str, ...],
    train_steps: int,
    scaling: "Scaling",
    target_loss: float | None,
    output: str,
    root: str | None,
    verbose: bool,
) -> None:
    """Measures how training scales on this machine, and says what to change.

    Trains all combinations of the values of -p for some steps on the same data, one
    after another, without evaluating and pushing. Shows their speed, scaling
    efficiency, time to a loss and cost in machine hours, and gives advice.

    Exit code 0: all combinations that can be trained were measured. 1: one of them
    failed, or a component before the Trainer. 2: nothing was trained, because a value
    cannot be, or no combination on these data. 130, 143: it was ended by Ctrl-C or
    SIGTERM; what was measured before is shown.
    """
    if target_loss is not None and not math.isfinite(target_loss):
        refuse(f"--target-loss: {target_loss} is not a finite number; write one")
    shell.check_limits()
    shell.check_environment()
    combinations, module, paths = _load(pipeline, parameters, train_steps, scaling, root)
    from tfx_distribute.pipelines.cli import console as console_lib
    from tfx_distribute.pipelines.compare import comparison as comparison_lib
    from tfx_distribute.pipelines.compare import machine, report

    cores, num_gpus = machine.count_cores(), len(machine.list_gpus())
    outcomes = comparison_lib.initial_outcomes(combinations)
    with console_lib.redirect_output(paths.log, verbose, to_stderr=output == "json") as console:
        code = FAILED
        try:
            code = _run(combinations, module, paths, console, outcomes)
        except ConfigurationError as error:
            console.print(f"Error: {error}", style="red", markup=False)
            code = INVALID
        except KeyboardInterrupt as interrupt:
            from tfx_distribute.components.launchers.sigterm import TerminatedError
            from tfx_distribute.trainer_module.lifecycle import exit_codes

            console.print("Interrupted. What has been measured so far:")
            code = exit_codes.PREEMPTED if isinstance(interrupt, TerminatedError) else INTERRUPTED
        finally:
            console.print(f"log      {paths.log}", markup=False)
    if outcomes == comparison_lib.initial_outcomes(combinations):
        sys.exit(code)
    name = next(each.spec.name for each in combinations if each.spec)
    result = comparison_lib.compare(name, scaling, train_steps, outcomes, cores, num_gpus, target_loss)
    document = json.dumps(report.as_document(result), indent=2)
    (_folder(paths) / "comparison.json").write_text(f"{document}\n", encoding="utf-8")
    click.echo(document if output == "json" else f"\n{report.as_text(result)}")
    sys.exit(code)


def _load(
    pipeline: str, arguments: tuple[str, ...], train_steps: int, scaling: "Scaling", root: str | None
) -> "tuple[list[Combination], Module, RunPaths]":
    """Reads the pipeline and makes its combinations; ends the program on a mistake."""
    from tfx_distribute.pipelines.compare import combinations as combinations_lib
    from tfx_distribute.pipelines.compare import grid, machine
    from tfx_distribute.pipelines.spec import loader, user_module
    from tfx_distribute.pipelines.targets.local.target import LocalTarget

    try:
        spec = loader.load(pipeline)
        values = grid.parse(arguments)
        combinations = combinations_lib.make(spec, values, train_steps, scaling, machine.list_gpus())
        first = next(each.spec for each in combinations if each.spec)
        paths = LocalTarget(first, {"root": root}).paths.comparison
        paths.create()
        _folder(paths).mkdir(mode=0o700, parents=True)
        return combinations, user_module.find(first), paths
    except ConfigurationError as error:
        refuse(str(error))


def _folder(paths: "RunPaths") -> "Path":
    """Returns the folder for the results of a comparison."""
    from tfx_distribute.pipelines.targets.local.paths import COMPARISON

    return paths.root / "compare" / paths.run_id.removeprefix(COMPARISON)


def _run(combinations, module, paths, console, outcomes: "list[Outcome]") -> int:  # type: ignore[no-untyped-def]
    """Trains the combinations, and updates their outcomes as soon as they are known.

    Returns:
      The exit code.
    """
    from tfx_distribute.components.launchers.local.fork_client import ForkServer
    from tfx_distribute.pipelines.cli import console as console_lib
    from tfx_distribute.pipelines.compare import comparison as comparison_lib
    from tfx_distribute.pipelines.compare import grid
    from tfx_distribute.trainer_module import garbage_collection

    spec = next(each.spec for each in combinations if each.spec)
    for each in combinations:
        if each.problem:
            console.print(f"  - {grid.describe(each.values)}: skipped: {each.problem}", markup=False)
    # The fork server imports TensorFlow while this process imports TFX and runs the
    # components before the Trainer.
    with ForkServer(paths.logs / "fork-server.log", spec.trainer.parameters.keras_version) as server:
        with garbage_collection.paused():
            from tfx_distribute.pipelines.cli import node_errors
            from tfx_distribute.pipelines.compare import trainings
            from tfx_distribute.pipelines.targets.local import runner

        labels = [f"{number} {grid.describe(each.values)}".strip() for number, each in enumerate(combinations, 1)]
        with (
            console_lib.RunView(console) as view,
            runner.session(spec, module, paths, server, view.training_progressed, view.beam_progressed) as connection,
        ):

            def on_node(event: runner.NodeStarted | runner.NodeEnded) -> None:
                if isinstance(event, runner.NodeStarted):
                    view.node_started(event.node)
                else:
                    view.node_ended(event.node, event.seconds, event.cached)

            def on_start(index: int) -> None:
                view.node_started(labels[index])

            try:
                for index, outcome in trainings.run(
                    combinations, module, paths, connection, _folder(paths), on_node, on_start
                ):
                    outcomes[index] = outcome
                    if outcome.measurement:
                        view.node_ended(labels[index], outcome.measurement.total_seconds, cached=False)
                    else:
                        view.node_failed(labels[index], f"{outcome.status}: {outcome.reason}")
            except runner.NodeError as error:
                view.node_failed(error.node)
                message = node_errors.explain(error.__cause__ or error, module.file.parent)
                console.print(message, markup=False, style="red")
                return FAILED
    statuses = {outcome.status for outcome in outcomes}
    if statuses == {comparison_lib.SKIPPED}:
        return INVALID
    return FAILED if comparison_lib.FAILED in statuses else 0
