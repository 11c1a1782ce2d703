"""The user's module: found, imported, and called with what it needs to know."""

import ast
import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import UserModule

if TYPE_CHECKING:
    import tensorflow_transform as tft


@dataclass(frozen=True)
class ModelContext:
    """What `build_model(context)` is told.

    Attributes:
      hparams: The hyperparameters of the pipeline, `-p` values and a Tuner's included.
      inputs: Name -> `tf.io` feature spec of each feature that the model may read, after the transform.
      label: Name of the feature that the model predicts.
      transform_output: The transform graph, for vocabularies and bucket boundaries; None without a transform.
      num_replicas: Replicas that train in step.
      global_batch_size: Examples per training step over all replicas.
      train_steps: Training steps in all, for learning rate schedules.
      is_chief: True in the process whose files are kept. The other processes do the same work.
      model_run_dir: Folder for what callbacks write, such as `ModelCheckpoint`. Processes other than the chief get a
        temporary one.
    """

    hparams: Mapping[str, Any]
    inputs: Mapping[str, Any]
    label: str
    transform_output: "tft.TFTransformOutput | None"
    num_replicas: int
    global_batch_size: int
    train_steps: int
    is_chief: bool
    model_run_dir: str


def load(module: UserModule) -> Callable[..., Any]:
    """Imports the user's module and returns the function that it names.

    Raises:
      ConfigurationError: The module does not import, or lacks the function.
    """
    sys.path[:0] = [folder for folder in module.search_path if folder not in sys.path]
    name, _, function = module.function.rpartition(".")
    try:
        loaded = importlib.import_module(name)
    except Exception as error:
        raise ConfigurationError(f"module: {name!r} does not import: {type(error).__name__}: {error}") from error
    try:
        return getattr(loaded, function)
    except AttributeError as error:
        raise ConfigurationError(f"module: {name!r} ({loaded.__file__}) has no function {function!r}") from error


def load_callbacks(module: UserModule, context: ModelContext) -> list[Any]:
    """What `callbacks(context)` beside the module's function returns, a list of Keras callbacks; none without it."""
    loaded = sys.modules[module.function.rpartition(".")[0]]
    make = getattr(loaded, "callbacks", None)
    return list(make(context)) if callable(make) else []


def top_level_names(path: str | Path) -> set[str]:
    """Names that a Python file defines or imports at its top level, found without running it.

    Raises:
      ConfigurationError: The file is not there, or is not Python.
    """
    try:
        tree = ast.parse(Path(path).read_bytes(), filename=str(path))
    except OSError as error:
        raise ConfigurationError(f"module: cannot read {path}: {error.strerror}") from error
    except SyntaxError as error:
        raise ConfigurationError(f"module: {path}, line {error.lineno}: {error.msg}") from error
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def fingerprint(place: Path) -> str:
    """A digest of a Python file; of a folder, of all Python files in it and below, which one of them may import."""
    if place.is_file():
        return hashlib.sha256(place.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for file in sorted(_python_files(place)):
        digest.update(str(file.relative_to(place)).encode() + b"\0" + fingerprint(file).encode())
    return digest.hexdigest()


def _python_files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        # Environments, caches and checkouts of other things are not what a module imports from beside it.
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and name != "site-packages"]
        yield from (Path(parent) / name for name in files if name.endswith(".py"))


def training_function(names: set[str], where: str) -> str:
    """Which function of a module trains: `build_model`, or else the `run_fn` of a TFX module.

    Args:
      names: Top-level names of the module.
      where: How to call the module in a message.

    Raises:
      ConfigurationError: It has neither.
    """
    for function in ("build_model", "run_fn"):
        if function in names or "*" in names:
            return function
    raise ConfigurationError(
        f"module: {where} has neither build_model(context), which returns a compiled Keras model, nor TFX's run_fn(fn_args)"
    )
