"""Keeps other users from connecting to local training processes.

Loads the library built from `_loopback.c` into them.
"""

from collections.abc import Mapping
from pathlib import Path

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.liveness.exposure import Exposure

_LIBRARY = next(iter(sorted(Path(__file__).parent.glob("_loopback*.so"))), None)
_SEPARATORS = " :"  # of paths in LD_PRELOAD, which has no way to quote them
_STRANGERS = {
    Exposure.NETWORK: "Anyone who can reach this machine over the network",
    Exposure.MACHINE: "Every user of this machine",
}


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables that load the library into a process.

    `environ` has the other variables of the process. Returns none if there is no
    library, or LD_PRELOAD cannot hold its path.
    """
    if _LIBRARY is None or any(separator in str(_LIBRARY) for separator in _SEPARATORS):
        return {}
    preloaded = environ.get("LD_PRELOAD")
    return {"LD_PRELOAD": f"{_LIBRARY}:{preloaded}" if preloaded else str(_LIBRARY)}


def describe(exposure: Exposure) -> str:
    """Describes who can connect to training processes; empty if only their owner can.

    Raises:
      ConfigurationError: Not even their owner can, so they cannot work together.
    """
    if exposure is Exposure.OWNER:
        return ""
    if exposure is Exposure.NONE:
        raise ConfigurationError("training processes of this user cannot connect to each other; docs/security.md says why")
    return (
        f"WARNING: {_STRANGERS[exposure]} can take over this training while it runs, and read and write your files through "
        "it; docs/security.md says why"
    )
