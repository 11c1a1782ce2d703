"""Handles the state in which a shell starts or leaves a command.

Covers closed, full and broken streams, interrupts and limits of the process.
"""

import contextlib
import errno
import io
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tfx_distribute.pipelines.cli.options import BROKEN_PIPE, INTERRUPTED, refuse
from tfx_distribute.pipelines.cli.terminal import SafeStream

MIN_OPEN_FILES = 256  # TFX, Beam and a small cluster open about a hundred

KFP = ("kfp", "kfp_server_api")  # only extras have it

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)


class Group(click.Group):
    """A group of commands that always end with one message and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a command with a home folder and open streams that accept any text."""
        open_streams()
        ensure_home()
        return super().main(*args, **kwargs)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parses the options of the group."""
        with _explaining_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        with _explaining_errors():
            return super().invoke(ctx)


@contextlib.contextmanager
def _explaining_errors() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _discard_output()
        sys.exit(BROKEN_PIPE)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in KFP:
            raise
        refuse(
            "the package kfp is not installed, and pipelines for Kubeflow Pipelines and Vertex AI need it; write "
            "`uv pip install '.[kfp]'`, or '.[vertex]', in the checkout of tfx-distribute"
        )
    except OSError as error:
        if error.filename is None and error.errno in _OUTPUT_ERRORS:
            _discard_output()
            refuse(f"cannot write to standard output: {error.strerror}")
        refuse(f"{error.filename}: {error.strerror}" if error.filename is not None else str(error.strerror or error))


def open_streams() -> None:
    """Opens closed standard streams as /dev/null, and makes all accept any text.

    Otherwise the next opened file would get the stream's descriptor, and receive
    whatever is printed. Characters that an encoding lacks are printed as escapes.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    for name in ("stdout", "stderr"):
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.flush()
            setattr(sys, name, SafeStream(stream))


def ensure_home() -> None:
    """Sets HOME to / for a user without a home folder, as Docker does.

    Packages that TFX imports fail without a home folder.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


def check_limits() -> None:
    """Checks that this process has a working folder and may open enough files.

    Raises the limit of open files if that is allowed; otherwise ends the program.
    """
    try:
        os.getcwd()
    except OSError:
        refuse("the working folder does not exist any more; change to another one")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < MIN_OPEN_FILES:
        if hard != resource.RLIM_INFINITY and hard < MIN_OPEN_FILES:
            refuse(f"a process may open {hard} files here, and a run needs {MIN_OPEN_FILES}; raise the limit (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (MIN_OPEN_FILES, hard))


def check_environment() -> None:
    """Checks settings of Python and Keras with which TensorFlow or TFX do not import.

    Ends the program if there is one.
    """
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        refuse(f"KERAS_BACKEND={backend}: strategies of tf.distribute need tensorflow; run `unset KERAS_BACKEND`")
    if sys.flags.optimize > 1:
        refuse("PYTHONOPTIMIZE=2: TensorFlow needs its docstrings; run `unset PYTHONOPTIMIZE`")


def _discard_output() -> None:
    """Discards buffered output, which Python would fail to print again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
