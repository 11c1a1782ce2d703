"""The user's module as the pipeline file names it: where it is, what it offers, how to import it. Runs none of it."""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfx_distribute.pipelines.runners.local.settings import LocalSettings
from tfx_distribute.pipelines.spec import files
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.user_code import fingerprint, function_settings
from tfx_distribute.trainer_module.user_code import module_loader as module_lib

MAX_BYTES = 16 * files.MIB


@dataclass(frozen=True)
class Module:
    """A module of the user's.

    Attributes:
      name: What it is imported as.
      file: The file that defines it.
      folder: The folder to import it from; None for an installed module.
      train: Name of the function that trains: `build_model` or `run_fn`.
      data: Files and folders of the pipeline's data and results, which are not part of the module if they are beside it.
    """

    name: str
    file: Path
    folder: Path | None
    train: str
    data: tuple[Path, ...] = ()

    def function(self, name: str) -> str:
        """Dotted path of one of its functions."""
        return f"{self.name}.{name}"

    def fingerprint(self) -> str:
        """Returns a digest of the module and of what it may import or read from beside it; see `fingerprint.of_folder`."""
        if self.folder is None:
            return fingerprint.of_module(self.name, self.file)
        return fingerprint.of_folder(self.folder, excluding=self.data)


def find(spec: PipelineSpec) -> Module:
    """Finds the pipeline's module and checks that it has the functions that the pipeline calls.

    Raises:
      ConfigurationError: It is not there, is not Python, or lacks one.
    """
    if spec.module.endswith(".py"):
        file = Path(spec.module)
        name, folder = file.stem, file.parent
        if not name.isidentifier() or name in sys.stdlib_module_names:
            raise ConfigurationError(f"module: {file.name} cannot be imported under that name; rename the file")
    else:
        name, folder = spec.module, None
        if name == "__main__" or not all(part.isidentifier() for part in name.split(".")):
            raise ConfigurationError(f"module: {name!r} is not the name of a module; for a file, write its path with .py")
        found = module_lib.locate(name)
        if found is None:
            raise ConfigurationError(f"module: {name!r} is not installed; for a file, write its path with .py")
        file = found
    names = _read_names(file, siblings=folder is not None)
    train = module_lib.training_function(names, str(file))
    parameters = spec.trainer.parameters
    if train == "run_fn":
        strategy_table.check_run_fn(parameters.distribution)
    arguments = [name for name in ("hparams", "custom_config") if getattr(spec.trainer, name)]
    ignored = function_settings.ignored(train, parameters.schedule, parameters.reading, parameters.recovery, arguments)
    for name, reason in ignored.items():
        raise ConfigurationError(f"trainer.{'' if name in arguments else 'parameters.'}{name}: {reason}")
    if train == "run_fn" and not parameters.train_steps:
        raise ConfigurationError("trainer.parameters.train_steps: is missing; a run_fn is told how long to train by it")
    if train == "build_model" and spec.trainer.label is None:
        raise ConfigurationError("trainer.label: is missing; write the name of the feature that the model predicts")
    if train == "build_model" and not (parameters.train_steps or parameters.epochs):
        raise ConfigurationError("trainer.parameters: how long to train is not said; write train_steps or epochs")
    if spec.transform and spec.transform.preprocessing_fn not in names and "*" not in names:
        raise ConfigurationError(f"transform: {file} has no function {spec.transform.preprocessing_fn!r}")
    return Module(name, file, folder, train, _data(spec))


def _data(spec: PipelineSpec) -> tuple[Path, ...]:
    """Returns where local data and results of a pipeline are."""
    source = None if spec.data.example_gen else spec.data.source[1]
    local = spec.targets.find(LocalSettings)
    places = (source, spec.data.schema_file, spec.push and spec.push.directory, local and local.root)
    # With `~`, but without an error where there is no such home folder: that is said where the place is used.
    return tuple(Path(os.path.expanduser(place)) for place in places if place and "://" not in place)


def _read_names(file: Path, siblings: bool) -> set[str]:
    """Returns the names that a module defines, after a check that it can be read, and with `siblings` its folder's modules.

    Raises:
      ConfigurationError: One of the files cannot be, or the module is not Python source.
    """
    if file.suffix != ".py":
        raise ConfigurationError(f"module: {file} is not Python source; write a module with a .py file")
    try:
        files.check_readable(file, MAX_BYTES)
        for sibling in fingerprint.python_files(file.parent) if siblings else ():
            files.check_readable(sibling, MAX_BYTES)
    except files.FileError as error:
        raise ConfigurationError(f"module: cannot read {error}") from error
    try:
        return module_lib.top_level_names(file)
    except ConfigurationError:
        raise
    except (ValueError, RecursionError, MemoryError) as error:  # of NUL bytes and of deep nesting
        raise ConfigurationError(f"module: {file} is not Python source: {error}") from error


@contextlib.contextmanager
def importable(module: Module) -> Iterator[None]:
    """Has the module import from its folder within the block, as it is now on disk; in processes that start there too."""
    if module.folder is None:
        yield
        return
    folder = str(module.folder)
    _forget(module.folder)
    sys.path.insert(0, folder)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, before)))
    try:
        yield
    finally:
        sys.path.remove(folder)
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _forget(folder: Path) -> None:
    """Drops what was imported from a folder before: in a notebook, the file may have changed since."""
    for name, loaded in list(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        if name != "__main__" and file and folder in Path(file).parents:
            del sys.modules[name]
