"""Makes a command a good citizen of its shell: closed, full and broken streams, interrupts, limits of the process."""

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

MIN_OPEN_FILES = 256  # TFX, Beam and a small cluster have about a hundred

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)


class Group(click.Group):
    """A group of commands that end with one message and an exit code, whatever state the shell left the process in."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a command with standard streams that are open and take any text, and with a home folder."""
        open_streams()
        ensure_home()
        return super().main(*args, **kwargs)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Reads the options of the group."""
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
    except OSError as error:
        if error.filename is None and error.errno in _OUTPUT_ERRORS:
            _discard_output()
            refuse(f"cannot write to standard output: {error.strerror}")
        refuse(f"{error.filename}: {error.strerror}" if error.filename is not None else str(error.strerror or error))


def open_streams() -> None:
    """Opens standard streams that the shell has closed, as /dev/null, and has them print any text in any encoding.

    Otherwise the next file that is opened would get the descriptor, and what is printed would go into it.
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def ensure_home() -> None:
    """Sets HOME to / for a user without a home folder, as Docker does; packages that TFX imports fail without one."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


def check_limits() -> None:
    """Checks that this process can run a pipeline: it has a working folder, and may open enough files.

    The limit of open files is raised where that is allowed; otherwise the program ends.
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


def _discard_output() -> None:
    """Sends what is left to print to /dev/null; Python would fail to print it once more when it exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
