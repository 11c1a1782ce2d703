"""Finds and imports the user's module, and defines the argument of its functions."""

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.labels import FeatureNames
from tfx_distribute.trainer_module.job.training_job import UserModule
from tfx_distribute.trainer_module.user_code import fingerprint, module_copy, user_exit

if TYPE_CHECKING:
    import tensorflow_transform as tft


@dataclass(frozen=True)
class ModelContext:
    """The argument of `build_model(context)` and `callbacks(context)`.

    ```python
    def build_model(context):
        vocabulary = context.transform_output.vocabulary_by_name("words")
        units = context.hparams["units"]
        ...
    ```

    Attributes:
      hparams: The pipeline's hyperparameters, including `-p` values and a Tuner's.
      inputs: Name -> `tf.io` feature spec of each feature that the model may read,
        after the transform.
      label: Name of the feature that the model predicts; or, for several, name of an
        output -> name of its label; None if there is none.
      transform_output: The transform graph, for vocabularies and bucket boundaries;
        None without a transform.
      num_replicas: Replicas that train in step.
      global_batch_size: Examples per training step over all replicas.
      train_steps: Total number of training steps, for learning rate schedules.
      is_chief: True in the process whose files are kept. The other processes do the
        same work.
      model_run_dir: Folder for files of callbacks such as `ModelCheckpoint`. Processes
        other than the chief get a temporary one.
    """

    hparams: Mapping[str, Any]
    inputs: Mapping[str, Any]
    label: FeatureNames | None
    transform_output: "tft.TFTransformOutput | None"
    num_replicas: int
    global_batch_size: int
    train_steps: int
    is_chief: bool
    model_run_dir: str


def load(module: UserModule) -> Callable[..., Any]:
    """Imports the user's module, also from its search path; returns its function."""
    module_copy.use()
    sys.path[:0] = [folder for folder in module.search_path if folder not in sys.path]
    name, _, function = module.function.rpartition(".")
    try:
        imported = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        reason = f"{_describe_place(error)}{user_exit.describe(error)}"
        raise ConfigurationError(f"module: {name!r} does not import: {reason}") from error
    try:
        return getattr(imported, function)
    except AttributeError as error:
        raise ConfigurationError(f"module: {imported} has no function {function!r}") from error


def _describe_place(error: BaseException) -> str:
    """Returns the file and the line in which an import failed, for a message."""
    if isinstance(error, SyntaxError | SystemExit):  # whose descriptions have them
        return ""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen importlib") and frame.filename != importlib.__file__
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: " if len(frames) > 1 else ""


def load_optional(module: UserModule, name: str) -> Callable[..., Any] | None:
    """Imports the user's module and returns another of its functions, if it has it."""
    load(module)
    function = getattr(sys.modules[module.function.rpartition(".")[0]], name, None)
    return function if callable(function) else None


def find_all(module: UserModule, kind: type) -> list[Any]:
    """Returns the objects of a class among the globals of a module that is imported."""
    return [value for value in vars(sys.modules[module.function.rpartition(".")[0]]).values() if isinstance(value, kind)]


def is_below(folder: Path, file: Path) -> bool:
    """Returns True if a file is below a folder, but not in an installed package."""
    return file.is_relative_to(folder) and fingerprint.PACKAGE_FOLDERS.isdisjoint(file.relative_to(folder).parts)


def locate(name: str) -> Path | None:
    """Returns the file of an installed module; None if there is none.

    Imports neither the module nor its packages. Does not find modules of a package that
    sets its own `__path__`, nor those of an editable install that maps subpackages.
    """
    top, *parts = name.split(".")
    package = importlib.util.find_spec(top)
    if package is None:
        return None
    if not parts:
        return Path(package.origin) if package.has_location and package.origin else None
    paths = [Path(folder, *parts) for folder in package.submodule_search_locations or ()]
    files = [file for path in paths for file in (path / "__init__.py", path.with_suffix(".py"))]
    return next((file for file in files if file.is_file()), None)


def top_level_names(path: str | Path) -> dict[str, ast.AST | None]:
    """Returns the names that a Python file defines or imports, without running it.

    The values are what the file gives each name last; None if it imports it. A star
    import has the name `*`. Raises ConfigurationError if the file cannot be read, or is
    not Python.
    """
    try:
        tree = ast.parse(Path(path).read_bytes(), filename=str(path))
    except OSError as error:
        raise ConfigurationError(f"module: cannot read {path}: {error.strerror}") from error
    except SyntaxError as error:
        raise ConfigurationError(f"module: {path}, line {error.lineno}: {error.msg}") from error
    values: dict[str, ast.AST | None] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            values[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            values.update((alias.asname or alias.name, None) for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values.update((target.id, node.value) for target in targets if isinstance(target, ast.Name))
    return values


def _takes_one_argument(value: ast.AST) -> bool:
    """Returns True unless the source says that a call with one argument would fail."""
    if not isinstance(value, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    arguments = value.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    is_accepted = positional >= 1 or arguments.vararg is not None
    return is_accepted and positional - len(arguments.defaults) <= 1 and None not in arguments.kw_defaults


def training_function(names: Mapping[str, ast.AST | None], where: str) -> str:
    """Returns the name of a module's training function, `build_model` or `run_fn`.

    `names` is from `top_level_names`. If a file has both, `build_model` trains only if
    the file itself defines one that can be called with one argument: many modules with
    a `run_fn` have a helper of that name. A star import counts if the file names
    neither.
    """
    builder = names.get("build_model")
    if "run_fn" in names:
        return "build_model" if builder and _takes_one_argument(builder) else "run_fn"
    if "build_model" in names or "*" in names:
        return "build_model"
    raise ConfigurationError(
        f"module: {where} has neither build_model(context), which returns a compiled Keras model, nor TFX's run_fn(fn_args)"
    )
