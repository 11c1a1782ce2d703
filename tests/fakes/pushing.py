"""Pushes models under faults, and reads the folder as a model server does."""

import os
import signal
import sys
from pathlib import Path

from tfx_distribute.components.pusher import publishing


def served(folder: Path) -> Path | None:
    """Returns the version that a model server loads: the highest number."""
    versions = [name for name in os.listdir(folder) if name.isdigit()]
    return folder / max(versions, key=int) if versions else None


def contents(model: Path) -> dict[str, bytes]:
    """Returns path -> bytes of each file of a model."""
    return {str(file.relative_to(model)): file.read_bytes() for file in sorted(model.rglob("*")) if file.is_file()}


def push_struck(model: str, folder: str, number: int) -> None:
    """Pushes, and kills this process right before an operation.

    Operations are open, mkdir, rename and so on, by number. Exits with code 0 if there
    are fewer.
    """
    remaining = number

    def strike(event: str, _: object) -> None:
        nonlocal remaining
        if event in ("open", "os.mkdir", "os.rename", "os.listdir", "os.scandir", "os.walk", "os.remove", "os.rmdir"):
            remaining -= 1
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(strike)
    publishing.publish(model, folder)
