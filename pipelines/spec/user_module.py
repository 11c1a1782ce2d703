"""Finds the user's module, checks the functions in it and makes it importable.

Does not run the module.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfx_distribute.components.example_gen import spans
from tfx_distribute.components.tuner import search as search_lib
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, BaseModelSpec, PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import labels, strategy_table
from tfx_distribute.trainer_module.user_code import fingerprint, module_copy
from tfx_distribute.trainer_module.user_code import module_loader as module_lib

# Top-level names that this package's processes have imported before a module.
_IMPORTED_BEFORE = {
    *("__main__", "absl", "apache_beam", "google", "keras", "ml_metadata", "numpy", "pandas", "pyarrow", "pydantic", "six"),
    *("tensorflow", "tensorflow_model_analysis", "tensorflow_transform", "tf_keras", "tfx", "tfx_distribute", "yaml"),
}


@dataclass(frozen=True)
class Module:
    """The user's module.

    Attributes:
      name: Name that it is imported under.
      folder: The folder to import it from; None for an installed module.
      train: Name of the function that trains: `build_model` or `run_fn`.
      data: Files and folders of the pipeline's data and results; not part of the
        module, even if they are next to it.
      names: Names that the file defines or imports at its top level.
    """

    name: str
    file: Path
    folder: Path | None
    train: str
    data: tuple[Path, ...] = ()
    names: frozenset[str] = frozenset()

    def makes_labels(self) -> bool:
        """Returns True if the module may make labels of its own while it trains.

        With `*`, the file imports names that cannot be read.
        """
        return self.train == "run_fn" or not self.names.isdisjoint({"decode_features", "*"})

    def fingerprint(self) -> str:
        """Returns a digest of the module and of files next to it that it may use.

        See `fingerprint.of_folder`.
        """
        if self.folder is None:
            return fingerprint.of_module(self.name, self.file)
        return fingerprint.of_folder(self.folder, excluding=self.data)


def find(spec: PipelineSpec) -> Module:
    """Finds the pipeline's module and checks that it has the functions it needs."""
    if spec.module.endswith(".py"):
        file = Path(spec.module)
        name, folder = file.stem, file.parent
        if not name.isidentifier() or name in sys.stdlib_module_names | _IMPORTED_BEFORE:
            raise ConfigurationError(f"module: {file.name} cannot be imported under that name; rename the file")
    else:
        name, folder = spec.module, None
        if name == "__main__" or not all(part.isidentifier() for part in name.split(".")):
            raise ConfigurationError(f"module: {name!r} is not the name of a module; for a file, write its path with .py")
        located = module_lib.locate(name)
        if located is None:
            raise ConfigurationError(f"module: {name!r} is not installed; for a file, write its path with .py")
        file = located
    if file.suffix != ".py":
        raise ConfigurationError(f"module: {file} is not Python source; write a module with a .py file")
    names = module_lib.top_level_names(file)
    train = module_lib.training_function(names, str(file))
    parameters = spec.trainer.parameters
    if train == "run_fn":
        strategy_table.check_run_fn(parameters.distribution)
        if spec.tune:
            raise ConfigurationError(
                "tune: the results of a run_fn have no metrics to compare; write build_model, or use TFX's own Tuner in a "
                "pipeline in Python"
            )
    arguments = [name for name in ("hparams", "custom_config") if getattr(spec.trainer, name)]
    ignored = strategy_table.find_ignored(
        train, parameters.training_options, parameters.input_options, parameters.fault_tolerance, arguments
    )
    for name, reason in ignored.items():
        raise ConfigurationError(f"trainer.{'' if name in arguments else 'parameters.'}{name}: {reason}")
    if train == "run_fn" and not parameters.train_steps:
        raise ConfigurationError("trainer.parameters.train_steps: is missing; a run_fn needs it to know how long to train")
    if train == "build_model":
        if "label" not in spec.trainer.model_fields_set:
            raise ConfigurationError(
                "trainer.label: is missing; write the name of the feature that the model predicts, or null if it has none"
            )
        labels.check(spec.trainer.label, spec.trainer.example_weight, parameters.class_weight)
        if not (parameters.train_steps or parameters.epochs):
            raise ConfigurationError(
                "trainer.parameters: the length of the training is missing; write train_steps or epochs"
            )
    if not spec.trainer.base_model.path and spec.trainer.base_model != BaseModelSpec():
        raise ConfigurationError("trainer.base_model: the path is missing; write it, or give -p base_model=PATH")
    if spec.tune:
        search_lib.trial_options(spec.tune, parameters.training_options)
    if spec.transform and not {spec.transform.preprocessing_fn, "*"} & names.keys():
        raise ConfigurationError(f"transform: {file} has no function {spec.transform.preprocessing_fn!r}")
    return Module(name, file, folder, train, _list_data_paths(spec), frozenset(names))


def _list_data_paths(spec: PipelineSpec) -> tuple[Path, ...]:
    source = None if spec.data.example_gen else spans.before_fields(spec.data.source[1])
    base_model = None if spec.trainer.base_model.path == LATEST_BLESSED else spec.trainer.base_model.path
    paths = (source, spec.data.schema_file, base_model, spec.push and spec.push.directory, spec.targets.local.root)
    # Not Path.expanduser(), which fails without such a home folder: the code that uses
    # the path reports that.
    return tuple(Path(os.path.expanduser(path)) for path in paths if path and "://" not in path)


@contextlib.contextmanager
def importable(module: Module) -> Iterator[None]:
    """Makes the module importable within the block, as it is now on disk.

    Processes that start within the block can import it, too. All of them get what is
    there now: edits in the meantime are for the next run.
    """
    if module.folder is None:
        yield
        return
    folder = str(module.folder)
    _forget_imports(module.folder)
    sys.path.insert(0, folder)
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    try:
        with (
            variable_set("PYTHONPATH", path),
            tempfile.TemporaryDirectory(prefix="tfx-distribute-") as copy,
            module_copy.used(module.folder, Path(copy)),
        ):
            yield
    finally:
        sys.path.remove(folder)


@contextlib.contextmanager
def variable_set(name: str, value: str) -> Iterator[None]:
    """Sets an environment variable within the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _forget_imports(folder: Path) -> None:
    """Drops modules imported from a folder: in a notebook, files may have changed.

    Keeps what is installed in an environment in the folder, and this package:
    TensorFlow cannot be imported twice.
    """
    for name, loaded in list(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        is_kept = name == "__main__" or name.partition(".")[0] == "tfx_distribute"
        if not is_kept and file and module_lib.is_below(folder, Path(file)):
            del sys.modules[name]
