"""Holds what commands share: exit codes, options, and loading a pipeline."""

import contextlib
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tfx_distribute.pipelines import target_names
from tfx_distribute.pipelines.targets import target as target_lib
from tfx_distribute.trainer_module.errors import TfxDistributeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
    from tfx_distribute.pipelines.spec.user_module import Module
    from tfx_distribute.pipelines.targets.target import Target

TargetT = TypeVar("TargetT", bound="Target[Any]")

FAILED = 1
INVALID = 2  # click's own code for a wrong command line
NOT_BLESSED = 3
STOPPED = 4  # the data were rejected
INTERRUPTED = 130  # 128 plus the number of the signal, as in shells

OUTPUT = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
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


def target_option(help_text: str) -> "Callable[[Any], Any]":
    """Returns the option `--target` for all platforms; local is the default."""
    return click.option(
        "--target",
        "target_name",
        type=click.Choice(list(target_names.TARGETS)),
        default="local",
        show_default=True,
        help=help_text,
    )


ANY_TARGET = target_option("Platform that the pipeline would run on.")


def add_options(command: click.Command, options: "Iterable[click.Option]") -> None:
    """Adds targets' own options; targets may share one, which is then added once."""
    names = {parameter.name for parameter in command.params}
    for option in options:
        if option.name not in names:
            command.params.append(option)
            names.add(option.name)


def check_options(target_class: "type[Target[Any]]", options: "Mapping[str, Any]") -> None:
    """Ends the program if an option does not go with the target or other options.

    Options from environment variables, and with default values, are ignored.
    """
    accepted = {option.name for option in _own_options(target_class)}
    source = click.get_current_context().get_parameter_source
    for other in target_lib.remote_targets().values():
        for name in (str(option.name) for option in _own_options(other)):
            if name not in accepted and options.get(name) and source(name) is click.core.ParameterSource.COMMANDLINE:
                refuse(f"--{name.replace('_', '-')}: goes with --target {other.name}, not with --target {target_class.name}")
    if issubclass(target_class, target_lib.RemoteTarget):
        with refusing_errors():
            target_class.check_options(options)


def _own_options(target_class: "type[Target[Any]]") -> tuple[click.Option, ...]:
    if issubclass(target_class, target_lib.RemoteTarget):
        return (*target_class.compile_options, *target_class.submit_options)
    return ()


def load(
    pipeline: str,
    parameters: tuple[str, ...],
    target_class: "type[TargetT]",
    options: "Mapping[str, Any] | None" = None,
    refuse_with: "Callable[[PipelineSpec, str], NoReturn] | None" = None,
) -> "tuple[TargetT, Module]":
    """Reads a pipeline file and checks what needs neither TFX nor TensorFlow.

    Ends the program if something is wrong: with `refuse_with` in place of `refuse` if
    it is wrong with a file that could be read. `parameters` are `NAME=VALUE`, `options`
    the command-line options for the target, by parameter name.
    """
    from tfx_distribute.pipelines.spec import loader, user_module

    spec = None
    try:
        spec = loader.load(pipeline)
        spec = loader.override(spec, loader.parse_parameters(parameters))
        module = user_module.find(spec)
        return target_class(spec, options), module
    except TfxDistributeError as error:
        if spec and refuse_with:
            refuse_with(spec, str(error))
        refuse(str(error))


@contextlib.contextmanager
def refusing_errors() -> "Iterator[None]":
    """Ends the program with the message of an error of this package."""
    try:
        yield
    except TfxDistributeError as error:
        refuse(str(error))


def refuse(message: str) -> NoReturn:
    """Prints an error message and ends the program with exit code `INVALID`."""
    _print_error(f"Error: {message}")
    sys.exit(INVALID)


def warn(message: str) -> None:
    """Prints a warning to standard error, as `refuse` prints an error."""
    _print_error(f"Warning: {message}")


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError):  # the exit code remains
        click.echo(text, err=True)


@contextlib.contextmanager
def calm(show_log: bool = False) -> "Iterator[None]":
    """Hides what libraries print and log, and ends the program as `refusing_errors`."""
    import logging
    import os
    import warnings

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    before = logging.root.manager.disable
    if not show_log:
        logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), refusing_errors():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
