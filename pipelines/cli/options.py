"""Holds what commands share: exit codes, options, and loading a pipeline."""

import contextlib
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tfx_distribute.pipelines.targets import target as target_lib
from tfx_distribute.trainer_module.errors import ConfigurationError, TfxDistributeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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


def on_platforms(help_text: str, *kinds: str, remote_only: bool = False) -> "Callable[[click.Command], click.Command]":
    """Gives a command `--target`, and the platforms' own options of some kinds.

    The command gets the class of the target, by default that of this machine, as
    `target_class`, and the platforms' options, which have been checked, by their names.
    """
    platforms = target_lib.remote_targets()
    target = click.Option(
        ["--target", "target_class"],
        type=click.Choice(list(platforms if remote_only else target_lib.TARGETS)),
        default=None if remote_only else "local",
        required=remote_only,
        show_default=True,
        callback=lambda context, parameter, name: target_lib.get(name),
        help=help_text,
    )
    own = [option for each in platforms.values() for kind in kinds for option in getattr(each, f"{kind}_options")]

    def add(command: click.Command) -> click.Command:
        callback: Any = command.callback

        def checked(**options: Any) -> None:
            with refusing_errors():
                _check_options(options["target_class"], options)
            callback(**options)

        command.callback = checked
        command.params += [target, *{option.name: option for option in own}.values()]  # platforms share some
        return command

    return add


def _check_options(target_class: "type[Target[Any]]", options: "Mapping[str, Any]") -> None:
    """Checks that options go with the target and each other.

    Options from environment variables, and with default values, are ignored.
    """
    own = {name: (*each.place_options, *each.submit_options) for name, each in target_lib.remote_targets().items()}
    own["local"] = (click.Option(["--root"]),)
    accepted = {option.name for option in own[target_class.name]}
    source = click.get_current_context().get_parameter_source
    for other, others in own.items():
        for name in (str(option.name) for option in others):
            if name not in accepted and options.get(name) and source(name) is click.core.ParameterSource.COMMANDLINE:
                raise ConfigurationError(
                    f"--{name.replace('_', '-')}: goes with --target {other}, not with --target {target_class.name}"
                )
    if issubclass(target_class, target_lib.RemoteTarget):
        target_class.check_options(options)


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
    click.echo(f"Error: {message}", err=True)
    sys.exit(INVALID)


def warn(message: str) -> None:
    """Prints a warning to standard error, as `refuse` prints an error."""
    click.echo(f"Warning: {message}", err=True)


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
