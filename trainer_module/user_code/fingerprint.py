"""Fingerprints the code, its data files and the packages that a result depends on.

An earlier run's results are reused, and training continues from an earlier state, only
if these fingerprints are the same.
"""

import ast
import contextlib
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

# Of one file; larger ones count by size and modification time.
MAX_CONTENT_BYTES = 1 << 20
MAX_TOTAL_CONTENT_BYTES = 64 << 20
MAX_FILES_OF_FOLDER = 1_000  # besides Python files; a folder with more holds data

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
PACKAGE_FOLDERS = frozenset(["site-packages", "dist-packages"])
_SKIPPED_FOLDERS = ("__pycache__", "site-packages", "node_modules", "wandb", "mlruns")
# Files that mark a folder as a virtual environment, a cache
# (https://bford.info/cachedir) or the runs of a pipeline.
_MARKERS = ("pyvenv.cfg", "CACHEDIR.TAG", "metadata.sqlite")
# Files and folders in the root of runs, which may be the module's own folder.
_RUNS = ("metadata.sqlite", "artifacts", "logs", "serving")
_SKIPPED_SUFFIXES = (".pyc", ".ipynb", ".md", ".rst", ".log", ".out", ".err", ".bak")
# Files that editors, crashes and TensorBoard leave: `model.py~`, `core.123`,
# `events.out.tfevents.1795...`.
_LEFT_BEHIND = re.compile(r"^\.|~$|^core(\.\d+)?$|\.tfevents\.")
REPORT_MARK = b'<meta name="generator" content="tfx-distribute report">'
_PIPELINE_SUFFIXES = (".yaml", ".yml", ".json")


def environment() -> str:
    """Returns the versions of Python and of the packages that affect results."""
    versions = [f"python {'.'.join(platform.python_version_tuple()[:2])}"]
    for name in _PACKAGES:
        for distribution in (name, f"{name}-cpu"):  # TensorFlow has a build for CPUs
            with contextlib.suppress(metadata.PackageNotFoundError):  # a training process needs few of them
                versions.append(f"{name} {metadata.version(distribution)}")
                break
    return ", ".join(versions)


def of_file(path: str | Path) -> str:
    """Returns a digest of a file's content; above 64 MiB, of its size and time."""
    status = os.stat(path)
    if status.st_size > MAX_TOTAL_CONTENT_BYTES:
        return f"{status.st_size} {status.st_mtime_ns}"
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def of_folder(folder: Path, excluding: Iterable[Path] = ()) -> str:
    """Returns a digest of a folder's code, and of files that the code may read.

    Subfolders are included, links are followed, and each folder counts once. Python
    files count by content, other files up to 1 MiB each and 64 MiB in total, and by
    size and modification time beyond that. A folder with more than 1,000 other files
    counts only for its Python files.

    Not counted are hidden files and folders, virtual environments, caches, the runs of
    a pipeline, pipeline files, compiled pipelines, reports of runs, notebooks, logs,
    `.md` and `.rst` files, and what is `excluding`, such as the pipeline's data.
    """
    digest = hashlib.sha256()
    code, others = [], []
    for subfolder, files in _walk(folder, set(map(os.path.realpath, excluding))):
        code += _python_files(files)
        other = [file for file in files if file.suffix not in (".py", *_SKIPPED_SUFFIXES)]
        other = [file for file in other if not _LEFT_BEHIND.search(file.name)]
        if len(other) <= MAX_FILES_OF_FOLDER:
            others += other
        else:
            _log.info("%s: %d files besides Python count as data, not as part of the module", subfolder, len(other))
    total_bytes = 0
    for file in [*sorted(code), *sorted(others)]:
        try:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):
                continue
            if file.suffix != ".py":
                total_bytes += status.st_size
                if status.st_size > MAX_CONTENT_BYTES or total_bytes > MAX_TOTAL_CONTENT_BYTES:
                    _add(digest, folder, file, f"{status.st_size} {status.st_mtime_ns}")
                    continue
            content = file.read_bytes()
        except OSError:  # the module cannot read it either
            continue
        if not _is_pipeline(file, content) and REPORT_MARK not in content:
            _add(digest, folder, file, hashlib.sha256(content).hexdigest())
    return digest.hexdigest()


def python_files(folder: Path) -> Iterator[Path]:
    """Yields the Python files, judging by name, that `of_folder` finds in a folder."""
    for _, files in _walk(folder, set()):
        yield from _python_files(files)


def of_module(name: str, file: Path) -> str:
    """Returns a digest of the package that a module is in, or of what it imports."""
    depth = name.count(".") + (file.name == "__init__.py")
    return of_folder(file.parents[depth - 1]) if depth else of_imports(name, file)


def of_imports(name: str, file: Path) -> str:
    """Returns a digest of a module and of its neighbours that it imports.

    Imports of imports count too, as long as they are below the same root folder. Of an
    installed module, only those in its own package count: the others, such as TFX and
    TensorFlow, are thousands of files.
    """
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    is_installed = root.name in PACKAGE_FOLDERS
    counted = root / name.partition(".")[0] if is_installed else root
    files, pending = {file}, deque([file])
    while pending:
        for imported in _imports(pending.popleft(), root):
            if imported not in files and imported.is_relative_to(counted):
                files.add(imported)
                pending.append(imported)
    digest = hashlib.sha256()
    for path in sorted(files):
        _add(digest, root, path, of_file(path))
    return digest.hexdigest()


def _python_files(files: Iterable[Path]) -> list[Path]:
    return [file for file in files if file.suffix == ".py" and not file.name.startswith(".")]


def _add(digest: "hashlib._Hash", root: Path, file: Path, content: str) -> None:
    digest.update(f"{file.relative_to(root)}\0{content}\0".encode(errors="surrogateescape"))


def _walk(folder: Path, excluded: set[str]) -> Iterator[tuple[Path, list[Path]]]:
    """Yields folders, following links, each with its files."""
    seen: set[str] = set()
    excluded_names = {os.path.basename(path) for path in excluded}
    for path, folders, files in os.walk(folder, followlinks=True):
        real, subfolder = os.path.realpath(path), Path(path)
        if real in seen or (subfolder != folder and not {*folders, *files}.isdisjoint(_MARKERS)):
            folders.clear()
            continue
        seen.add(real)
        candidates = {name for name in (*folders, *files) if name in excluded_names or os.path.islink(f"{path}/{name}")}
        left_out = {name for name in candidates if os.path.realpath(f"{path}/{name}") in excluded}
        left_out.update(_RUNS if _RUNS[0] in files else ())
        hidden = {name for name in folders if name.startswith(".") or name in _SKIPPED_FOLDERS}
        folders[:] = sorted(set(folders) - left_out - hidden)
        yield subfolder, [subfolder / name for name in sorted(set(files) - left_out)]


def _is_pipeline(file: Path, content: bytes) -> bool:
    """Returns True for a pipeline file or a compiled pipeline.

    TFX's cache keys follow from their content already.
    """
    if file.suffix not in _PIPELINE_SUFFIXES:
        return False
    keys = set(re.findall(rb"^(name|module|data|trainer):", content, re.MULTILINE))
    return len(keys) == 4 or b"deploymentSpec" in content


def _imports(file: Path, root: Path) -> Iterator[Path]:
    """Yields the files below the root folder that a Python file imports."""
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
            location = base
            for part in name.split("."):
                location = location / part
                yield from (path for path in (location.with_suffix(".py"), location / "__init__.py") if path.is_file())
