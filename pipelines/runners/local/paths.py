"""Where a run on this machine keeps its things."""

import re
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tfx_distribute.pipelines.spec import files
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError

_OTHER = "write another --root, or another push.directory"
_PATTERN = re.compile(r"[*?\[\\\x00-\x1f\x7f]")


@dataclass(frozen=True)
class RunPaths:
    """Folders and files of one run.

    Attributes:
      root: Folder of all runs of the pipeline.
      logs: Folder of this run's logs.
      serving: Folder that models are pushed to.
    """

    root: Path
    logs: Path
    serving: Path

    @property
    def artifacts(self) -> Path:
        """Folder of all nodes' outputs."""
        return self.root / "artifacts"

    @property
    def metadata(self) -> Path:
        """SQLite file of ML Metadata."""
        return self.root / "metadata.sqlite"

    @property
    def log(self) -> Path:
        """File of everything that TFX, Beam and TensorFlow say in this run."""
        return self.logs / "run.log"

    def create(self) -> None:
        """Creates the folders that do not exist yet, and checks that a run can write where it has to.

        Artifacts, metadata and logs are created for their owner alone: they hold the data, and only this user's runs read
        them. The folder that models are pushed to has the mode that the umask gives, since a model server of another user
        may read it; so has `root`, which it is in by default. Whatever exists keeps its mode.

        Raises:
          ConfigurationError: A folder cannot be made or written to.
        """
        folder = self.root
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.logs.parent.mkdir(exist_ok=True)
            for folder in (self.artifacts, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
            folder = self.metadata
            self.metadata.touch(mode=0o600)
        except OSError as error:
            raise ConfigurationError(f"cannot create {folder}: {error.strerror}; {_OTHER}") from error
        for folder in (self.logs, self.artifacts, self.serving):
            existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
            try:
                with tempfile.TemporaryFile(dir=existing):
                    pass
            except OSError as error:
                raise ConfigurationError(f"cannot write to {existing}: {error.strerror}; {_OTHER}") from error


def run_paths(spec: PipelineSpec, root: str | None = None, now: datetime | None = None) -> RunPaths:
    """Decides where a run keeps its things.

    Args:
      spec: What the pipeline is.
      root: Folder of all runs of the pipeline; default the spec's, or else `runs/<name>` in the working folder.
      now: When the run begins; names its logs.

    Raises:
      ConfigurationError: A folder cannot be resolved, or TFX and Beam would take its name for a pattern of names.
    """
    if root is not None:
        folder = _resolve("--root", root)
    elif spec.targets.local.root is not None:
        folder = _resolve("targets.local.root", spec.targets.local.root)
    else:
        folder = _resolve("the working folder", f"runs/{spec.name}")
    found = _PATTERN.search(str(folder))
    if found:
        raise ConfigurationError(
            f"{str(folder)!r} has the character {found[0]!r}, which TFX and Beam read as part of a pattern of file names; "
            "write a --root, or targets.local.root, without it"
        )
    pushed = spec.push.directory if spec.push else None
    return RunPaths(
        root=folder,
        logs=folder / "logs" / (now or datetime.now()).strftime("%Y%m%d-%H%M%S-%f"),
        serving=folder / "serving" if pushed is None else _resolve("push.directory", pushed),
    )


def _resolve(what: str, path: str) -> Path:
    try:
        return files.resolve(path)
    except files.FileError as error:
        raise ConfigurationError(f"{what}: {error}") from error
