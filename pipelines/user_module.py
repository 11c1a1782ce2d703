"""The user's module as the pipeline file names it: where it is, what it offers, how to import it. Runs none of it."""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tfx_distribute.pipelines.spec import PipelineSpec
from tfx_distribute.trainer_module import compatibility, function_settings
from tfx_distribute.trainer_module import module as module_lib
from tfx_distribute.trainer_module.errors import ConfigurationError


@dataclass(frozen=True)
class Module:
    """A module of the user's.

    Attributes:
      name: What it is imported as.
      file: The file that defines it.
      folder: The folder to import it from; None for an installed module.
      train: Name of the function that trains: `build_model` or `run_fn`.
    """

    name: str
    file: Path
    folder: Path | None
    train: str

    def function(self, name: str) -> str:
        """Dotted path of one of its functions."""
        return f"{self.name}.{name}"

    def fingerprint(self) -> str:
        """A digest of the Python files in its folder and below, which it may import."""
        return module_lib.fingerprint(self.file.parent)


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
        try:
            found = find_spec(name)
        except ModuleNotFoundError as error:
            raise ConfigurationError(f"module: {name!r} is not installed ({error})") from error
        if found is None or not found.origin:
            raise ConfigurationError(f"module: {name!r} is not installed; for a file, write its path with .py")
        file = Path(found.origin)
    names = module_lib.top_level_names(file)
    train = module_lib.training_function(names, str(file))
    parameters = spec.trainer.parameters
    if train == "run_fn":
        compatibility.check_run_fn(parameters.distribution)
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
    return Module(name, file, folder, train)


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
