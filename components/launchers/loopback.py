"""Has training processes of this machine listen on loopback only: see `_loopback.c`."""

from collections.abc import Mapping
from pathlib import Path

from absl import logging


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a process needs in its environment, beside `environ`; says so where it cannot be had."""
    built = sorted(Path(__file__).parent.glob("_loopback*.so"))
    if not built or " " in str(built[0]):  # where LD_PRELOAD would end
        logging.warning(
            "TensorFlow's servers listen on all interfaces of this machine while several processes train: the library that "
            "keeps them on loopback is missing (it is built on Linux with a C compiler, when tfx-distribute is installed)"
        )
        return {}
    before = environ.get("LD_PRELOAD")
    return {"LD_PRELOAD": f"{built[0]}:{before}" if before else str(built[0])}
