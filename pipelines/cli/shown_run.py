"""Runs a pipeline on this machine and shows it, for the command and from Python."""

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tfx_distribute.components.beam import errors
from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.components.launchers.locks import InUseError
from tfx_distribute.components.launchers.sigterm import TerminatedError, terminable
from tfx_distribute.components.tuner import trials
from tfx_distribute.pipelines.cli import console as console_lib
from tfx_distribute.pipelines.cli.options import FAILED, INTERRUPTED, INVALID, NOT_BLESSED, STOPPED
from tfx_distribute.pipelines.notify.message import Ending
from tfx_distribute.trainer_module import garbage_collection
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.liveness import exit_codes
from tfx_distribute.trainer_module.user_code import user_exit

if TYPE_CHECKING:
    from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
    from tfx_distribute.pipelines.spec.user_module import Module
    from tfx_distribute.pipelines.targets.local.paths import RunPaths
    from tfx_distribute.pipelines.targets.local.results import RunResult

MAX_LINES = 12  # of an error
_TRACEBACK = "Traceback (most recent call last):\n"


def run(
    spec: "PipelineSpec",
    module: "Module",
    paths: "RunPaths",
    console: Console,
    enable_cache: bool = True,
) -> "RunResult":
    """Runs a pipeline and shows its nodes, its training and its results."""
    # The fork server imports TensorFlow while this process imports TFX and runs the
    # components before the Trainer.
    with terminable(), ForkServer(paths.logs / "fork-server.log", spec.trainer.parameters.keras_version) as server:
        with garbage_collection.paused():
            from tfx_distribute.pipelines.targets.local import runner
            from tfx_distribute.trainer_module.keras import autograph

        autograph.exempt_libraries()  # which the Evaluator's metrics use, with every version of Keras

        with console_lib.RunView(console) as view:

            def show_node(node: str, seconds: float | None, cached: bool) -> None:
                view.on_node(node, seconds, cached)
                if seconds is not None and node.endswith(("ExampleGen", "ExampleValidator")):
                    console_lib.print_data(console, paths, node)

            try:
                result = runner.run(
                    spec, module, paths, server, enable_cache, show_node, view.training_progressed, view.beam_progressed
                )
            except runner.NodeError as error:
                view.node_failed(error.node, "stopped" if error.rejection else "failed")
                raise
        if result.search:
            console.print(trials.format_table(result.search), markup=False)
        console.print(console_lib.format_facts(result.facts))
        return result


def run_to_end(
    spec: "PipelineSpec", module: "Module", paths: "RunPaths", console: Console, enable_cache: bool = True
) -> Ending:
    """Runs a pipeline as `run` does, shows why it failed, and returns how it ended."""
    try:
        result = run(spec, module, paths, console, enable_cache)
    except ConfigurationError as error:
        console.print(f"Error: {error}", style="red", markup=False)
        return Ending(INVALID, str(error), is_news=not isinstance(error, InUseError))
    except KeyboardInterrupt as interrupt:
        return Ending(exit_codes.PREEMPTED if isinstance(interrupt, TerminatedError) else INTERRUPTED)
    except Exception as error:
        from tfx_distribute.pipelines.targets.local.runner import NodeError

        if not isinstance(error, NodeError):
            raise
        message = error.rejection or explain(error.__cause__ or error, module.file.parent)
        console.print(message, markup=False, style="red")
        return Ending(STOPPED, message) if error.rejection else Ending(FAILED, f"{error.node}: {message}")
    return Ending(NOT_BLESSED if result.blessed is False else 0)


def explain(error: BaseException, module_folder: Path) -> str:
    """Returns the first error of a chain, and its line in the user's code, if any."""
    if own := errors.find_own(error):
        return str(own)
    root = [*errors.chain(error)][-1]
    message, frames = user_exit.describe(root), [*traceback.extract_tb(root.__traceback__)]
    if _TRACEBACK in str(root):
        message, frames = _parse(str(root))
    lines = [message]
    user_frames = [frame for frame in frames if Path(frame.filename).parent == module_folder]
    if user_frames:
        frame = user_frames[-1]
        lines += [f"  at {frame.filename}, line {frame.lineno}, in {frame.name}", f"    {frame.line}"]
    lines = "\n".join(lines).splitlines()
    return "\n".join(lines[:MAX_LINES] + ["  ..."] * (len(lines) > MAX_LINES))


def _parse(text: str) -> tuple[str, list[traceback.FrameSummary]]:
    """Returns the message and the frames of the first exception of a printed chain."""
    first = re.split("\n\n(?:During handling of|The above exception)", text.partition(_TRACEBACK)[2])[0]
    frames = [
        traceback.FrameSummary(file, int(number), name, line=line)
        for file, number, name, line in re.findall(r'^  File "(.+)", line (\d+), in (.+)\n    (.+)', first, re.MULTILINE)
    ]
    message = re.sub(r"\A(?: .*\n)+", "", first).strip()
    return re.sub(r"\A(?:\w+\.)+(?=\w+:)", "", message), frames
