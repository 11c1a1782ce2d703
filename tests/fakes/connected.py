"""Runs code or a module as Python does, with fakes in place of Google Cloud.

    python connected.py [GRPC_ADDRESS PROJECT LOCATION] -c CODE [ARGUMENT ...]
    python connected.py [GRPC_ADDRESS PROJECT LOCATION] -m MODULE [ARGUMENT ...]

Makes Beam accept addresses that begin with file://, as TensorFlow and TFX do. With the
address of a `VertexApi`, connects the SDK to it, and makes the launcher of CustomJobs
poll more often. Exits at once when the module has
ended with success, to save seconds of cleanup.
"""

import atexit
import os
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem

SCHEME = "file://"
POLL_SECONDS = 0.5


class FileAddresses(LocalFileSystem):
    """Gives Beam access to local files by address.

    Beam finds the class among all subclasses, by its scheme.
    """

    @classmethod
    def scheme(cls) -> str:
        return "file"

    def split(self, path: str) -> tuple[str, str]:
        head, tail = super().split(_path(path))
        return f"{SCHEME}{head}", tail

    def mkdirs(self, path: str) -> None:
        super().mkdirs(_path(path))

    def create(self, path: str, *arguments: Any, **options: Any) -> Any:
        return super().create(_path(path), *arguments, **options)

    def open(self, path: str, *arguments: Any, **options: Any) -> Any:
        return super().open(_path(path), *arguments, **options)

    def copy(self, source_file_names: Iterable[str], destination_file_names: Iterable[str]) -> None:
        super().copy([*map(_path, source_file_names)], [*map(_path, destination_file_names)])

    def rename(self, source_file_names: Iterable[str], destination_file_names: Iterable[str]) -> None:
        super().rename([*map(_path, source_file_names)], [*map(_path, destination_file_names)])

    def exists(self, path: str) -> bool:
        return bool(super().exists(_path(path)))

    def size(self, path: str) -> int:
        return int(super().size(_path(path)))

    def last_updated(self, path: str) -> float:
        return float(super().last_updated(_path(path)))

    def checksum(self, path: str) -> str:
        return str(super().checksum(_path(path)))

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, self.size(path), self.last_updated(path))

    def delete(self, paths: Iterable[str]) -> None:
        files = [file.path for match in self.match([*paths]) for file in match.metadata_list]
        LocalFileSystem(None).delete([*map(_path, files)])

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for file in super()._list(_path(dir_or_prefix)):
            yield FileMetadata(f"{SCHEME}{file.path}", file.size_in_bytes, file.last_updated_in_seconds)


def _path(address: str) -> str:
    return address.removeprefix(SCHEME)


def connect(address: str, project: str, location: str) -> None:
    """Connects the SDK to a fake, for good."""
    import vertex_api

    from tfx_distribute.components.launchers.vertex.launcher import VertexLauncher

    VertexLauncher.poll_seconds = POLL_SECONDS
    vertex_api.redirect(address, project, location)


def main(arguments: list[str]) -> None:
    index = next(index for index, argument in enumerate(arguments) if argument in ("-c", "-m"))
    if index:
        connect(*arguments[:index])
    option, sys.argv = arguments[index], arguments[index + 1 :]  # `run_module` replaces the first by the module's file
    # The first entry is the script's folder; for `python -m` it is the working folder.
    sys.path[0] = str(Path.cwd())
    try:
        if option == "-c":
            exec(sys.argv[0], {"__name__": "__main__"})  # noqa: S102 (a step's command)
        else:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if error.code:
            raise
    atexit._run_exitfuncs()  # they remove temporary files
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
