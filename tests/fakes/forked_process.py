"""Imports modules once, and turns forks of this process into what new ones would be.

The product's fork server calls `tfx` or `tensorflow`, and `main` in each fork.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

# That of this process when it began, without what Python and TensorFlow have added.
_START_ENVIRONMENT = {pair.partition("=")[0] for pair in Path("/proc/self/environ").read_text().split("\0")}
_PATH = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
_TFX = (
    "tensorflow_model_analysis",
    "tfx.v1",
    "tfx_distribute.components.container.commands",
    "tfx_distribute.components.container.vertex",
    "tfx_distribute.components.evaluator.executor",
    "tfx_distribute.components.example_gen.executor",
    "tfx_distribute.components.example_gen.driver",
    "tfx_distribute.components.pusher.executor",
    "tfx_distribute.components.sharder.executor",
    "tfx_distribute.components.trainer.executor",
    "tfx_distribute.components.tuner.executor",
    "tfx_distribute.pipelines.cli.console",
    "tfx_distribute.pipelines.cli.main",
    "tfx_distribute.pipelines.cli.shown_run",
    "tfx_distribute.pipelines.targets.local.runner",
)


def tfx() -> None:
    """Imports TFX; fork servers of trainings are forks then."""
    for name in _TFX:
        importlib.import_module(name)
    import forked

    from tfx_distribute.components import fork_client

    fork_client.subprocess = forked.subprocess_for_fork_servers(Path(os.environ["TMPDIR"]))  # type: ignore[assignment]


def tensorflow() -> None:
    """Imports what a training process does."""
    importlib.import_module("tfx_distribute.trainer_module.process")


def main(request: str, *files: str) -> int:
    """Runs the process of a request as Python does; returns its exit code.

    Args:
      request: Its arguments, environment and folder, as JSON.
      *files: Paths of its standard streams, and of what gets its id.
    """
    *streams, answers = files
    for number, file in enumerate(streams):
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # with a buffer, which that of the fork server has not
    _become(json.loads(request))
    with open(answers, "w") as file:
        file.write(f"{os.getpid()}\n")
    code = 1
    try:
        _run(json.loads(request)["arguments"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    return code & 0xFF


def _become(request: dict[str, Any]) -> None:
    """Turns this fork into what a new process would be."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Of those that were registered before, the fork server has dropped all.
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    added = {name: value for name, value in os.environ.items() if name not in _START_ENVIRONMENT}
    os.environ.clear()
    os.environ.update(added | request["environment"])
    os.chdir(request["folder"])
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python does so with its own
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = ["", *(os.path.abspath(folder) for folder in folders if folder), *_PATH]


def _run(arguments: list[str]) -> None:
    """Runs what `python ARGUMENTS` would: `-m MODULE`, `-c CODE` or a file."""
    option, *others = arguments[1:] if arguments[0] == "-u" else arguments  # pytest-xdist flushes by itself
    if option == "-m":
        sys.path[0], sys.argv = os.getcwd(), others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.argv = ["-c", *others[1:]]
        exec(others[0], {"__name__": "__main__"})  # noqa: S102 (a step's command)
    elif not option.startswith("-"):
        sys.path[0], sys.argv = str(Path(option).resolve().parent), arguments
        runpy.run_path(option, run_name="__main__")
    else:
        raise ValueError(f"a forked process cannot run `python {option}`; start a new one")
