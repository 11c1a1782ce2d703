"""What the commands of `tfx-distribute` share: exit codes, options, and reading a pipeline file."""

import contextlib
import sys
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfx_distribute.pipelines.runners.local.paths import RunPaths
    from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
    from tfx_distribute.pipelines.spec.user_module import Module

FAILED = 1
INVALID = 2  # click's own code for a wrong command line
NOT_BLESSED = 3
INTERRUPTED = 130  # as shells have it: 128 and the signal
BROKEN_PIPE = 141

# Whether it can be read is found out by reading it.
PIPELINE = click.argument("pipeline", type=click.Path(readable=False))
PARAMETER = click.option(
    "-p",
    "--parameter",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a pipeline parameter or hyperparameter. May be repeated; the last value of a name counts.",
)


def load(
    pipeline: str, given: tuple[str, ...], target: str = "local", **options: str | None
) -> "tuple[PipelineSpec, Module]":
    """Reads and checks all that can be known before anything heavy is imported; ends the program where it is wrong.

    Args:
      pipeline: The pipeline file.
      given: Values of pipeline parameters, `NAME=VALUE`.
      target: Where it is to run: `local`, `kubeflow` or `vertex`.
      **options: Settings of the target in place of the file's; None for the file's.
    """
    from tfx_distribute.pipelines.spec import data_checks, loader, user_module
    from tfx_distribute.trainer_module.errors import ConfigurationError
    from tfx_distribute.trainer_module.job import strategy_table

    try:
        spec = loader.override(loader.load(pipeline), loader.parse_parameters(given))
        module = user_module.find(spec)
        spec = spec if target == "local" else loader.with_target(spec, target, options)
        if target == "kubeflow":
            from tfx_distribute.pipelines.runners.kubeflow import target as kubeflow_target

            kubeflow_target.validate_target(spec)
        elif target == "vertex":
            from tfx_distribute.pipelines.runners.vertex import target as vertex_target

            vertex_target.validate_target(spec)
        else:
            data_checks.check_data(spec)
            strategy_table.check_all_reduce(spec.trainer.parameters.distribution, "this machine")
    except ConfigurationError as error:
        refuse(str(error))
    return spec, module


def run_paths(spec: "PipelineSpec", root: str | None = None) -> "RunPaths":
    """Decides where a run on this machine keeps its things; ends the program where that cannot be.

    Args:
      spec: What the pipeline is.
      root: Folder of all runs of the pipeline; None for the spec's.
    """
    from tfx_distribute.pipelines.runners.local import paths
    from tfx_distribute.trainer_module.errors import ConfigurationError

    try:
        return paths.run_paths(spec, root)
    except ConfigurationError as error:
        refuse(str(error))


def refuse(message: str) -> NoReturn:
    """Ends the program: it cannot do what it is asked to."""
    with contextlib.suppress(OSError):  # the exit code says so too
        click.echo(f"Error: {message}", err=True)
    sys.exit(INVALID)


@contextlib.contextmanager
def quiet() -> "Iterator[None]":
    """Keeps what TensorFlow and TFX say while they are imported off the terminal."""
    import os
    import warnings

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
