"""Pushes that are struck by faults, and a model server's view of the folder.

unshare --user --map-root-user --mount python pushing.py MODEL FOLDER
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tfx_distribute.components.pusher import publishing


def served(folder: Path) -> Path | None:
    """The version that a model server loads: the highest number among the folder's entries."""
    versions = [name for name in os.listdir(folder) if name.isdigit()]
    return folder / max(versions, key=int) if versions else None


def contents(model: Path) -> dict[str, bytes]:
    """Path -> bytes of each file of a model."""
    return {str(file.relative_to(model)): file.read_bytes() for file in sorted(model.rglob("*")) if file.is_file()}


def push_struck(model: str, folder: str, number: int, how: int) -> None:
    """Pushes, and sends this process a signal right before the operation of that number: open, mkdir, rename, ...

    Exits with code 0 where there are fewer operations.
    """
    left = number

    def strike(event: str, _: object) -> None:
        nonlocal left
        if event in ("open", "os.mkdir", "os.rename", "os.listdir", "os.scandir", "os.walk", "os.remove", "os.rmdir"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), how)

    sys.addaudithook(strike)
    publishing.publish(model, folder)


def push_as(uid: int, model: str, folder: str, answer: str) -> None:
    """Pushes as another user, and writes the error into a file."""
    stream = open(answer, "w")  # noqa: SIM115
    os.setuid(uid)
    with stream:
        try:
            publishing.publish(model, folder)
        except publishing.PushError as error:
            stream.write(str(error))


def push_to_small_file_systems(model: Path, folder: Path) -> list[dict]:
    """Pushes to file systems of 2, 3, 4, ... pages until one has room, then to a read-only one."""
    found, pages = [], 2
    while not found or found[-1]["error"]:
        found.append(_push_to_tmpfs(model, folder, f"size={pages * 4}k"))
        pages += 1
    found.append(_push_to_tmpfs(model, folder, "size=1m", "remount,ro"))
    return found


def _push_to_tmpfs(model: Path, folder: Path, options: str, then: str | None = None) -> dict:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)  # noqa: S607
    try:
        older = folder / "1"
        older.mkdir()
        (older / "saved_model.pb").write_bytes(b"older")
        if then:
            subprocess.run(["mount", "-o", then, folder], check=True)  # noqa: S607
        error = ""
        try:
            publishing.publish(str(model), str(folder))
        except publishing.PushError as raised:
            error = str(raised)
        seen = served(folder)
        assert seen
        return {
            "error": error,
            "complete": contents(seen) == contents(model),
            "older": seen == older and contents(older) == {"saved_model.pb": b"older"},
            "names": sorted(os.listdir(folder)),
        }
    finally:
        subprocess.run(["umount", folder], check=True)  # noqa: S607


KILL = signal.SIGKILL

if __name__ == "__main__":
    print(json.dumps(push_to_small_file_systems(Path(sys.argv[1]), Path(sys.argv[2]))))
