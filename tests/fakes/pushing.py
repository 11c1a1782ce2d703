"""Pushes models under faults, and reads the folder as a model server does.

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
    """Returns the version that a model server loads: the highest number."""
    versions = [name for name in os.listdir(folder) if name.isdigit()]
    return folder / max(versions, key=int) if versions else None


def contents(model: Path) -> dict[str, bytes]:
    """Returns path -> bytes of each file of a model."""
    return {str(file.relative_to(model)): file.read_bytes() for file in sorted(model.rglob("*")) if file.is_file()}


def push_struck(model: str, folder: str, number: int, signal_number: int) -> None:
    """Pushes, and sends a signal to this process right before an operation.

    Operations are open, mkdir, rename and so on, by number. Exits with code 0 if there
    are fewer.
    """
    remaining = number

    def strike(event: str, _: object) -> None:
        nonlocal remaining
        if event in ("open", "os.mkdir", "os.rename", "os.listdir", "os.scandir", "os.walk", "os.remove", "os.rmdir"):
            remaining -= 1
            if remaining == 0:
                os.kill(os.getpid(), signal_number)

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
    """Pushes to file systems of 2, 3, 4, ... pages until one is large enough.

    Then pushes to a read-only one.
    """
    results, pages = [], 2
    while not results or results[-1]["error"]:
        results.append(_push_to_tmpfs(model, folder, f"size={pages * 4}k"))
        pages += 1
    results.append(_push_to_tmpfs(model, folder, "size=1m", "remount,ro"))
    return results


def _push_to_tmpfs(model: Path, folder: Path, options: str, remount: str | None = None) -> dict:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)  # noqa: S607
    try:
        older = folder / "1"
        older.mkdir()
        (older / "saved_model.pb").write_bytes(b"older")
        if remount:
            subprocess.run(["mount", "-o", remount, folder], check=True)  # noqa: S607
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
