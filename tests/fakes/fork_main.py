"""Imports modules once, and forks processes that go on like new ones.

    python fork_main.py FOLDER MODULE ...

Imports the modules. FOLDER is that of the importers: a process that has imported TFX
has its fork servers of trainings forked from another importer.

Serves `forked.fork`, over the Unix socket that is its standard input. A
message has four descriptors: a socket, and the standard streams of a new process. The
request comes from that socket as a line of JSON; the process's id, and its exit code
when it has ended, go there as lines. When the client closes its end or dies, all
processes end.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
Request = dict[str, Any]


def serve() -> tuple[Request, list[int]] | None:
    """Forks a process for each request.

    Returns:
      In a new process, its request and the descriptors of its streams; None in this one
      when the client has closed its end.
    """
    control = socket.socket(fileno=os.dup(0))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, tuple[socket.socket, bool]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    os.read(reader, 4096)
                    _reap(running)
                    continue
                _, descriptors, _, _ = socket.recv_fds(control, 1, 4)
                if not descriptors:
                    for pid in running:
                        _kill_session(pid)
                    return None
                answers = socket.socket(fileno=descriptors[0])
                with answers.makefile() as lines:
                    request = json.loads(lines.readline())
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for each in (control, answers, *(other for other, _ in running.values())):
                        each.close()
                    os.close(reader)
                    os.close(writer)
                    return request, descriptors[1:]
                for descriptor in descriptors[1:]:
                    os.close(descriptor)
                running[pid] = answers, request["ends_session"]
                answers.sendall(b"%d\n" % pid)


def _reap(running: dict[int, tuple[socket.socket, bool]]) -> None:
    """Reports the processes that have ended."""
    with contextlib.suppress(ChildProcessError):  # there are no children
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            answers, ends_session = running.pop(ended.si_pid)
            if ends_session:  # the number of the session is not reused before `waitpid`
                _kill_session(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            with answers, contextlib.suppress(BrokenPipeError):  # the client has left
                answers.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _kill_session(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)  # it has just been forked and is not yet the leader of its session


def become(request: Request, streams: list[int]) -> None:
    """Turns this fork into what a new process of a request would be."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    assert "PYTHONPATH" not in os.environ, "it would be in the import path of each process"
    before = _start_environment()
    added = {name: value for name, value in os.environ.items() if name not in before}  # by Python and TensorFlow
    os.environ.clear()
    os.environ.update(added | request["environment"])
    os.chdir(request["folder"])
    tempfile.tempdir = None
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python does so with its own
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [os.path.abspath(folder) for folder in folders if folder]


def _start_environment() -> dict[str, str]:
    """Returns the environment that this process was started with."""
    pairs = Path("/proc/self/environ").read_text().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs)


def run(arguments: list[str]) -> None:
    """Runs what `python ARGUMENTS` would: `-m MODULE`, `-c CODE` or a file."""
    option, *others = arguments
    if option == "-m":
        sys.path[0], sys.argv = os.getcwd(), others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.path[0], sys.argv = "", ["-c", *others[1:]]
        exec(others[0], {"__name__": "__main__"})  # noqa: S102 (a step's command)
    elif not option.startswith("-"):
        sys.path[0], sys.argv = str(Path(option).resolve().parent), arguments
        runpy.run_path(option, run_name="__main__")
    else:
        raise ValueError(f"a forked process cannot run `python {option}`; start a new one")


def run_to_end(request: Request, streams: list[int]) -> int:
    """Runs the process of a request as Python does; returns its exit code."""
    code = 1
    try:
        become(request, streams)
        run(request["arguments"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return code


def main(folder: Path, names: list[str]) -> int:
    """Imports modules and serves requests; returns an exit code, in each process."""
    from tfx_distribute.trainer_module import garbage_collection

    with garbage_collection.paused():
        for name in names:
            importlib.import_module(name)
        if "tfx" in sys.modules:
            import forked_training

            from tfx_distribute.components import fork_client

            fork_client.subprocess = forked_training.subprocess_for_fork_servers(folder)  # type: ignore[assignment]
    started = serve()
    return run_to_end(*started) if started else 0


if __name__ == "__main__":
    exit_code = 1
    try:
        exit_code = main(Path(sys.argv[1]), sys.argv[2:])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Skips the cleanup of TensorFlow, which takes seconds.
        os._exit(exit_code & 0xFF)
