"""Fingerprints what a result depends on besides its inputs: code, the files beside it, and installed packages.

Results of an earlier run are used again, and training continues from an earlier state, only under the same fingerprints.
"""

import ast
import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

MAX_CONTENT_BYTES = 1 << 20  # of one file; larger ones count by size and modification time
MAX_TOTAL_CONTENT_BYTES = 64 << 20
MAX_FILES_OF_FOLDER = 1_000  # other than Python; a folder with more holds data
MAX_FILES = 10_000
MAX_FOLDERS = 10_000

_log = logging.getLogger(__name__)

_PACKAGES = (
    "tfx-distribute",
    "tfx",
    "tfx-bsl",
    "tensorflow",
    "tf_keras",
    "keras",
    "tensorflow-transform",
    "tensorflow-data-validation",
    "tensorflow-model-analysis",
    "apache-beam",
    "numpy",
)
_SKIPPED_FOLDERS = ("__pycache__", "site-packages", "node_modules", "wandb", "mlruns")
# Of an environment, a cache (https://bford.info/cachedir) and the runs of a pipeline.
_MARKERS = ("pyvenv.cfg", "CACHEDIR.TAG", "metadata.sqlite")
_SKIPPED_SUFFIXES = (".pyc", ".ipynb", ".md", ".rst", ".log", ".out", ".err", ".bak")
# What editors, crashes and TensorBoard leave: `model.py~`, `core.123`, `events.out.tfevents.1795...`.
_LEFT_BEHIND = re.compile(r"^\.|~$|^core(\.\d+)?$|\.tfevents\.")
_PIPELINE_SUFFIXES = (".yaml", ".yml", ".json")


def environment() -> str:
    """Returns the versions of Python and of the packages that compute results, as text."""
    versions = [f"python {'.'.join(platform.python_version_tuple()[:2])}"]
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # a training process needs few of them
            continue
    return ", ".join(versions)


def of_file(path: str | Path) -> str:
    """Returns a digest of a file's content; of more than 64 MiB, of its size and modification time."""
    status = os.stat(path)
    if status.st_size > MAX_TOTAL_CONTENT_BYTES:
        return f"{status.st_size} {status.st_mtime_ns}"
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def of_folder(folder: Path, excluding: Iterable[Path] = ()) -> str:
    """Returns a digest of the code in a folder and below, and of other files that it may read.

    Links are followed, each folder counts once. Python files count by their content. So do other files, up to 1 MiB each and
    64 MiB in all; beyond that, by size and modification time. The time that this takes is bounded: a folder with more than
    1,000 other files counts for its Python files alone, and after 10,000 other files or folders the rest is left out, with
    a warning. Left out are also hidden files and folders, environments, caches, the runs of a pipeline, pipeline files and
    compiled pipelines, notebooks, logs and `.md` and `.rst` texts; and what this process has open for writing, such as a
    file that its output is redirected to.

    Args:
      folder: The folder.
      excluding: Files, and folders below it, that do not count, such as the pipeline's data.
    """
    excluded = {real for path in excluding if (real := _real(path))}
    digest = hashlib.sha256()
    code, others = [], []
    for place, files in _walk(folder, excluded):
        code += _python_files(files)
        rest = [file for file in files if file.suffix not in (".py", *_SKIPPED_SUFFIXES)]
        rest = [file for file in rest if not _LEFT_BEHIND.search(file.name)]
        if len(rest) <= MAX_FILES_OF_FOLDER:
            others += rest
        else:
            _log.info("%s: %d files besides Python count as data, not as part of the module", place, len(rest))
    if len(others) > MAX_FILES:
        _log.warning("%s: of %d files besides Python, %d count as part of the module", folder, len(others), MAX_FILES)
    total = 0
    written = _open_for_writing()
    for file in [*sorted(code), *sorted(others[:MAX_FILES])]:
        try:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in written:
                continue
            if file.suffix != ".py":
                total += status.st_size
                if status.st_size > MAX_CONTENT_BYTES or total > MAX_TOTAL_CONTENT_BYTES:
                    _add(digest, folder, file, f"{status.st_size} {status.st_mtime_ns}")
                    continue
            content = file.read_bytes()
        except OSError:  # nor can the module read it
            continue
        if not _is_pipeline(file, content):
            _add(digest, folder, file, hashlib.sha256(content).hexdigest())
    return digest.hexdigest()


def python_files(folder: Path) -> Iterator[Path]:
    """Yields what is named as a Python file in a folder and below, where `of_folder` looks."""
    for _, files in _walk(folder, set()):
        yield from _python_files(files)


def of_module(name: str, file: Path) -> str:
    """Returns a digest of an installed module: of the whole package that it is part of.

    Args:
      name: Dotted name of the module.
      file: The file that defines it.
    """
    depth = name.count(".") + (file.name == "__init__.py")
    return of_folder(file.parents[depth - 1]) if depth else of_file(file)


def of_imports(name: str, file: Path) -> str:
    """Returns a digest of a module and of the modules that it imports from beside it, directly or not.

    Args:
      name: Dotted name of the module.
      file: The file that defines it.
    """
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    found, waiting = {file}, deque([file])
    while waiting:
        for imported in _imports(waiting.popleft(), root):
            if imported not in found:
                found.add(imported)
                waiting.append(imported)
    digest = hashlib.sha256()
    for path in sorted(found):
        _add(digest, root, path, of_file(path))
    return digest.hexdigest()


def _python_files(files: Iterable[Path]) -> list[Path]:
    return [file for file in files if file.suffix == ".py" and not file.name.startswith(".")]


def _add(digest: "hashlib._Hash", root: Path, file: Path, content: str) -> None:
    digest.update(f"{file.relative_to(root)}\0{content}\0".encode(errors="surrogateescape"))


def _walk(folder: Path, excluded: set[Path]) -> Iterator[tuple[Path, list[Path]]]:
    """Goes through folders, the nearest first, links included. Yields each with what is in it besides folders."""
    seen: set[Path] = set()
    names = {path.name for path in excluded}
    waiting = deque([folder])
    while waiting:
        place = waiting.popleft()
        real = _real(place)
        if real is None or real in seen:
            continue
        if len(seen) == MAX_FOLDERS:
            _log.warning("%s: has more than %d folders; the rest does not count as part of the module", folder, MAX_FOLDERS)
            return
        seen.add(real)
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            continue
        if place != folder and any(entry.name in _MARKERS for entry in entries):
            continue
        files = []
        for entry in entries:
            path = place / entry.name
            if (entry.name in names or entry.is_symlink()) and _real(path) in excluded:
                continue
            if not os.path.isdir(path):
                files.append(path)
            elif not entry.name.startswith(".") and entry.name not in _SKIPPED_FOLDERS:
                waiting.append(path)
        yield place, files


def _open_for_writing() -> set[tuple[int, int]]:
    """Returns device and inode of the files that this process writes to."""
    found = set()
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the folder itself is closed again
            if fcntl.fcntl(int(name), fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR):
                status = os.fstat(int(name))
                found.add((status.st_dev, status.st_ino))
    return found


def _real(path: Path) -> Path | None:
    """Returns a path with its links resolved; None if they lead in a circle, or where this user may not look."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return None


def _is_pipeline(file: Path, content: bytes) -> bool:
    """True for a pipeline file or a compiled pipeline, whose own cache keys follow from what they say."""
    if file.suffix not in _PIPELINE_SUFFIXES:
        return False
    keys = set(re.findall(rb"^(name|module|data|trainer):", content, re.MULTILINE))
    return len(keys) == 4 or b"deploymentSpec" in content


def _imports(file: Path, root: Path) -> Iterator[Path]:
    """Yields the files below a root that a Python file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        names: list[tuple[Path, str]] = []
        if isinstance(node, ast.Import):
            names = [(root, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if node.level else root
            names = [(base, ".".join(filter(None, (node.module, alias.name)))) for alias in node.names]
        for base, name in names:
            place = base
            for part in name.split("."):
                place = place / part
                yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file())
