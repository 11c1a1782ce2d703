"""Holds what commands share: exit codes, options, and loading a pipeline."""

import contextlib
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfx_distribute.pipelines.runners.target import Target
    from tfx_distribute.pipelines.spec.user_module import Module

TargetT = TypeVar("TargetT", bound="Target[Any]")

FAILED = 1
INVALID = 2  # click's own code for a wrong command line
NOT_BLESSED = 3
INTERRUPTED = 130  # 128 plus the number of the signal, as in shells
BROKEN_PIPE = 141

# `load` reads the file, and reports it if that fails.
PIPELINE = click.argument("pipeline", type=click.Path(readable=False))
PARAMETER = click.option(
    "-p",
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A pipeline parameter or hyperparameter, e.g. strategy=mirrored. May be repeated; the last value of a name counts.",
)


def load(
    pipeline: str,
    parameters: tuple[str, ...],
    target_class: "type[TargetT]",
    options: "Mapping[str, Any] | None" = None,
) -> "tuple[TargetT, Module]":
    """Reads a pipeline file and checks what needs neither TFX nor TensorFlow.

    Ends the program if something is wrong.

    Args:
      pipeline: The pipeline file.
      parameters: Values of pipeline parameters, `NAME=VALUE`.
      target_class: The platform that it is to run on.
      options: Command-line options for the target, by parameter name.

    Returns:
      The target, which holds the pipeline and its validated settings, and the user's
      module.
    """
    from tfx_distribute.pipelines.spec import loader, user_module
    from tfx_distribute.trainer_module.errors import ConfigurationError

    try:
        spec = loader.override(loader.load(pipeline), loader.parse_parameters(parameters))
        module = user_module.find(spec)
        return target_class(spec, options), module
    except ConfigurationError as error:
        refuse(str(error))


def refuse(message: str) -> NoReturn:
    """Prints an error message and ends the program with exit code `INVALID`."""
    with contextlib.suppress(OSError):  # the exit code remains
        click.echo(f"Error: {message}", err=True)
    sys.exit(INVALID)


@contextlib.contextmanager
def quiet() -> "Iterator[None]":
    """Hides the messages that TensorFlow and TFX print when they are imported."""
    import os
    import warnings

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
