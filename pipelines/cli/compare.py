"""Defines the command `tfx-distribute compare`."""

import sys
import time
from typing import TYPE_CHECKING

import click

from tfx_distribute.pipelines import compare as defaults
from tfx_distribute.pipelines.cli import shell
from tfx_distribute.pipelines.cli.options import FAILED, INTERRUPTED, INVALID, OUTPUT, PIPELINE, STOPPED, refusing_errors
from tfx_distribute.trainer_module.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from tfx_distribute.pipelines.compare.combinations import Combination
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
@OUTPUT
@click.option("--root", type=click.Path(file_okay=False), help="Folder of all runs of the pipeline.")
@click.option("-v", "--verbose", is_flag=True, help="Show the logs of TFX, Beam and TensorFlow.")
def compare(
    pipeline: str, parameters: tuple[str, ...], train_steps: int, output: str, root: str | None, verbose: bool
) -> None:
    """Measures how training scales on this machine, and says what to change.

    Trains all combinations of the values of -p for some steps on the same data, one
    after another, without evaluating and pushing. Shows their speed, scaling
    efficiency, waits and loss, and gives advice.

    Exit code 0: all combinations that can be trained were measured. 1: one of them
    failed, or a component before the Trainer. 2: nothing was trained, because a value
    cannot be. 130, 143: it was ended by Ctrl-C or SIGTERM; what was measured before is
    shown.
    """
    shell.check_environment()
    combinations, module, paths, folder = _load(pipeline, parameters, train_steps, root)
    from tfx_distribute.pipelines.cli import compare_report, tables
    from tfx_distribute.pipelines.cli import console as console_lib
    from tfx_distribute.pipelines.compare import comparison

    outcomes = [comparison.initial_outcome(each) for each in combinations]
    with console_lib.redirect_output(paths.log, verbose, to_stderr=output == "json") as console:
        code = FAILED
        try:
            code = _run(module, paths, folder, console, outcomes)
        except ConfigurationError as error:
            console.print(f"Error: {error}", style="red", markup=False)
            code = INVALID
        except KeyboardInterrupt as interrupt:
            from tfx_distribute.components.launchers.sigterm import TerminatedError
            from tfx_distribute.trainer_module.liveness import exit_codes

            console.print("Interrupted. What has been measured so far:")
            code = exit_codes.PREEMPTED if isinstance(interrupt, TerminatedError) else INTERRUPTED
        finally:
            console.print(f"log      {paths.log}", markup=False)
    if any(each.status in ("measured", "failed") for each in outcomes):
        document = tables.to_json(compare_report.as_document(combinations[0].spec.name, outcomes, train_steps))
        (folder / "comparison.json").write_text(f"{document}\n", encoding="utf-8")
        click.echo(document if output == "json" else f"\n{compare_report.as_text(outcomes, train_steps)}")
    sys.exit(code)


def _load(
    pipeline: str, arguments: tuple[str, ...], train_steps: int, root: str | None
) -> "tuple[list[Combination], Module, RunPaths, Path]":
    """Reads the pipeline and makes its combinations; ends the program on a mistake.

    The last path is the folder that the trainings and their results go to.
    """
    from tfx_distribute.components.launchers.local import gpus
    from tfx_distribute.pipelines.compare import combinations as combinations_lib
    from tfx_distribute.pipelines.compare import grid
    from tfx_distribute.pipelines.spec import loader, user_module
    from tfx_distribute.pipelines.targets.local.paths import COMPARISON
    from tfx_distribute.pipelines.targets.local.target import LocalTarget

    with refusing_errors():
        spec = loader.load(pipeline)
        combinations = combinations_lib.make(spec, grid.parse(arguments), train_steps, gpus.list_visible())
        first = next(each.spec for each in combinations if not each.problem)
        paths = LocalTarget(first, {"root": root}).paths.comparison
        paths.create()
        folder = paths.root / "compare" / paths.run_id.removeprefix(COMPARISON)
        folder.mkdir(mode=0o700, parents=True)
        return combinations, user_module.find(first), paths, folder


def _run(module: "Module", paths: "RunPaths", folder: "Path", console: "Console", outcomes: "list[Outcome]") -> int:
    """Trains the combinations, updating their outcomes, and returns the exit code."""
    from tfx_distribute.components.launchers.local.fork_client import ForkServer
    from tfx_distribute.pipelines.cli import console as console_lib
    from tfx_distribute.trainer_module import garbage_collection

    for each in outcomes:
        if each.reason:
            console.print(f"  - {each.combination.label}: skipped: {each.reason}", markup=False)
    trainable = {index: each.combination for index, each in enumerate(outcomes) if not each.reason}
    spec = next(iter(trainable.values())).spec
    # The fork server imports TensorFlow while this process imports TFX and runs the
    # components before the Trainer.
    with ForkServer(paths.logs / "fork-server.log", spec.trainer.parameters.keras_version) as server:
        with garbage_collection.paused():
            from tfx_distribute.pipelines.cli import node_errors
            from tfx_distribute.pipelines.compare import trainings
            from tfx_distribute.pipelines.targets.local import runner

        with (
            console_lib.RunView(console) as view,
            runner.session(spec, module, paths, server, view.training_progressed, view.beam_progressed) as connection,
        ):
            try:
                with trainings.prepare([*trainable.values()], module, paths, connection, folder, view.on_node) as train:
                    for index, combination in trainable.items():
                        title, started = f"{index + 1} {combination.label}", time.monotonic()
                        view.on_node(title)
                        outcomes[index] = train(index + 1, combination)
                        if outcomes[index].measurement:
                            view.on_node(title, time.monotonic() - started)
                        else:
                            view.node_failed(title, f"failed: {outcomes[index].reason}")
            except runner.NodeError as error:
                view.node_failed(error.node, "stopped" if error.rejection else "failed")
                text = error.rejection or node_errors.explain(error.__cause__ or error, module.file.parent)
                console.print(text, markup=False, style="red")
                return STOPPED if error.rejection else FAILED
    return FAILED if any(each.status == "failed" for each in outcomes) else 0
