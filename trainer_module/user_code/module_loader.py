"""The user's module: found, imported, and called with what it needs to know."""

import ast
import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import UserModule
from tfx_distribute.trainer_module.user_code import user_exit

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
    except SystemExit as error:
        raise ConfigurationError(f"module: {name!r} does not import: {user_exit.describe(error)}") from error
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


def locate(name: str) -> Path | None:
    """Returns the file of an installed module without importing it, nor the packages that it is in; None if there is none.

    A package that changes its own `__path__` when it is imported is not followed.
    """
    places = list(sys.path)
    parts = name.split(".")
    for number in range(1, len(parts)):
        found = _find_spec(".".join(parts[:number]), places)
        if found is None or found.submodule_search_locations is None:
            return None
        places = list(found.submodule_search_locations)
    found = _find_spec(name, places)
    return Path(found.origin) if found and found.has_location and found.origin else None


def _find_spec(name: str, places: list[str]) -> ModuleSpec | None:
    """Finds a module in folders, or by finders such as those of editable installs."""
    for finder in sys.meta_path:
        found = _find_in(name, places) if finder is PathFinder else finder.find_spec(name, places)
        if found is not None:
            return found
    return None


def _find_in(name: str, places: list[str]) -> ModuleSpec | None:
    """Does what PathFinder does, which takes the parent of a namespace package from sys.modules."""
    namespace = ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = []
    for place in places:
        importer = pkgutil.get_importer(place)
        found = importer.find_spec(name) if importer else None
        if found is not None and found.loader is not None:
            return found
        namespace.submodule_search_locations += found.submodule_search_locations or [] if found else []
    return namespace if namespace.submodule_search_locations else None


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
