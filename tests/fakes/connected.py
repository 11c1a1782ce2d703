"""Runs a module as `python -m` does, where stand-ins take the place of Google Cloud.

    python connected.py [URL PROJECT LOCATION] -m MODULE [ARGUMENT ...]

Beam takes addresses that begin with file://, as TensorFlow and TFX do by themselves. With a URL, which is that of a
`VertexApi`, the SDK is led there, and the launcher of custom jobs looks more often how its job is. When the module has ended
well, the process leaves at once: what it would still tear down takes it seconds.
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
    """This machine's files for Beam, by their addresses. Beam finds it by its scheme, among all subclasses."""

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
        files = [found.path for match in self.match([*paths]) for found in match.metadata_list]
        LocalFileSystem(None).delete([*map(_path, files)])

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for found in super()._list(_path(dir_or_prefix)):
            yield FileMetadata(f"{SCHEME}{found.path}", found.size_in_bytes, found.last_updated_in_seconds)


def _path(address: str) -> str:
    return address.removeprefix(SCHEME)


def connect(url: str, project: str, location: str) -> None:
    """Leads the SDK to a stand-in, for good: `aiplatform.init` without these settings keeps them."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    from tfx_distribute.components.launchers.custom_job import launcher as custom_job_launcher

    custom_job_launcher.POLL_SECONDS = POLL_SECONDS
    aiplatform.init(
        project=project, location=location, api_endpoint=url, api_transport="rest", credentials=AnonymousCredentials()
    )


def main(words: list[str]) -> None:
    at = words.index("-m")
    if at:
        connect(*words[:at])
    sys.argv = words[at + 1 :]  # whose first is replaced by the module's file
    # What a script finds first is its own folder; `python -m` has the working folder there.
    sys.path[0] = str(Path.cwd())
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            raise
    atexit._run_exitfuncs()  # which remove temporary files
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
