"""Imports TensorFlow once and forks processes on request: of trainings, or of Beam.

    python -m tfx_distribute.trainer_module.fork_server MODULE:FUNCTION

first calls the function: it imports what all processes need, and may return values for
the first answer. A fresh interpreter needs seconds to import TensorFlow; a fork of one
that has imported it needs none. The server never runs a TensorFlow operation itself, so
that its forks start with a fresh runtime. Its environment decides which Keras
`tf.keras` is, in all of them (`training_job.keras_environment`).

It is a child of its client and talks to it in JSON lines, requests on standard input,
answers on standard output:

    (when it is prepared)
        -> {"ready": N, ...}
    {"start": "worker-0", "call": "MODULE:FUNCTION", "arguments": [...], "log": FILE,
     "environment": {...}, "import_path": [...], "command": null}
    {"signal": "worker-0", "number": 15}
    (when a process ends)
        -> {"ended": "worker-0", "status": N}

The function of `call` returns the exit code. A `command` is what a fork runs in place
of itself, for a process that has to import TensorFlow in another way than the server
has. Without a `log`, the output goes where that of the server goes.

`status` is the exit code, or minus the number of the signal that ended the process.
When standard input closes, because the client closed it or has died, the server kills
all processes that it started and exits.
"""

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import sys
import tempfile
import traceback
from typing import Any

from tfx_distribute.trainer_module import garbage_collection
from tfx_distribute.trainer_module.liveness import exit_codes, exit_functions

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class _Server:
    def __init__(self) -> None:
        self._tasks: dict[int, str] = {}  # process id -> task
        # The answers get a separate descriptor; any other output goes to the log.
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def serve(self, ready: dict[str, Any]) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(0, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The client handles Ctrl-C and decides when processes end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        self._answer({"ready": os.getpid(), **ready})
        pending = b""
        while True:
            for key, _ in selector.select():
                if key.fd == reader:
                    os.read(reader, 4096)
                    self._reap()
                    continue
                chunk = os.read(0, 65536)
                if not chunk:
                    self._end_all()
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._handle(json.loads(line))

    def _handle(self, request: dict[str, Any]) -> None:
        if "start" in request:
            server = os.getpid()
            pid = os.fork()
            if pid == 0:
                _run_process(request, self._answers.fileno(), server)
            self._tasks[pid] = request["start"]
        else:
            for pid, task in self._tasks.items():
                if task == request["signal"] and request["number"] == signal.SIGKILL:
                    _kill_group(pid)
                elif task == request["signal"]:
                    # Not to its group: it may need its child processes while it saves.
                    os.kill(pid, request["number"])

    def _reap(self) -> None:
        """Reports processes that have ended, and kills what they started."""
        with contextlib.suppress(ChildProcessError):  # there are no children
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # processes that it may have started
                self._answer({"ended": self._tasks.pop(pid), "status": os.waitstatus_to_exitcode(status)})

    def _end_all(self) -> None:
        for pid in self._tasks:
            _kill_group(pid)
        for pid in self._tasks:
            os.waitpid(pid, 0)

    def _answer(self, answer: dict[str, Any]) -> None:
        # Without a client to answer, the end of standard input ends all.
        with contextlib.suppress(BrokenPipeError):
            self._answers.write(json.dumps(answer) + "\n")
            self._answers.flush()


def _call(path: str, *arguments: Any) -> Any:
    module, _, function = path.partition(":")
    return getattr(importlib.import_module(module), function)(*arguments)


def _run_process(request: dict[str, Any], answers: int, server: int) -> None:
    """Turns this fork into the process of a request. Does not return."""
    code = exit_codes.FAILED
    try:
        exit_functions.forget()
        # In a new session, a Ctrl-C at the terminal reaches only the client, and the
        # process can be killed together with all that it starts.
        os.setsid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it was killed before that
            os._exit(code)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.close(answers)
        no_input = os.open(os.devnull, os.O_RDONLY)
        os.dup2(no_input, 0)
        if request["log"]:
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
        os.environ.update(request["environment"])
        if request["command"]:
            os.execv(request["command"][0], request["command"])  # noqa: S606 (the client composes it)
        tempfile.tempdir = None  # the request may have another TMPDIR
        sys.path[:] = request["import_path"]
        code = _call(request["call"], *request["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        exit_functions.end(code)


def _kill_group(pid: int) -> None:
    """Kills a process that is not reaped yet, with the processes that it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)  # just forked and not yet the leader of its group


def main(prepare: str) -> None:
    """Calls the function at a path, then serves until standard input closes."""
    server = _Server()  # before the imports, so that their output goes to the log
    with garbage_collection.paused():
        ready = _call(prepare) or {}
    server.serve(ready)
    # All processes have ended. TensorFlow's own end takes a second, for which the
    # client would wait.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
