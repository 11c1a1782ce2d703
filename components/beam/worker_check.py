"""Checks, in a Beam worker, that it can run the pipelines of this package."""

from tfx_distribute import __version__ as VERSION  # noqa: N812 (a constant)
from tfx_distribute.trainer_module.errors import ConfigurationError


def check_version(_: object, expected: str) -> None:
    """Checks that this process has the version of the one that submits pipelines.

    Raises:
      ConfigurationError: It has another version.
    """
    if expected != VERSION:
        raise ConfigurationError(
            f"beam.environment_config: the workers have tfx-distribute {VERSION}, but this process has {expected}; start "
            "them from the image of the pipeline's steps"
        )
