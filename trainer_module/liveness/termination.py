"""Tells how long a process may take to save, from SIGTERM until it is killed.

The platform gives each container a time to end in, after which it kills the container.
Most of it is for saving; the rest is for processes to end, and for the launcher that
waits for them. Imports no TensorFlow.
"""

from collections.abc import Mapping

from tfx_distribute.trainer_module import timeouts

# Environment variable: seconds from SIGTERM to SIGKILL, where they are not the usual
# ones.
GRACE = "TFX_DISTRIBUTE_TERMINATION_GRACE_SECONDS"
SAVING_SHARE = 0.75
LAUNCHER_SHARE = 5 / 6  # longer than processes save, and with time for their end


def saving_seconds(environment: Mapping[str, str]) -> float:
    """Returns how long a training process may save before it ends."""
    return SAVING_SHARE * _find_grace(environment)


def launcher_seconds(environment: Mapping[str, str]) -> float:
    """Returns how long a launcher waits for its training processes to save and end."""
    return LAUNCHER_SHARE * _find_grace(environment)


def _find_grace(environment: Mapping[str, str]) -> float:
    return float(environment.get(GRACE, timeouts.TERMINATION_SECONDS))
