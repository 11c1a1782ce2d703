"""Decides where a run on this machine keeps its files."""

import re
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tfx_distribute.pipelines.spec import files
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError

_ADVICE = "write another --root, or another push.directory"
_PATTERN_CHARACTERS = re.compile(r"[*?\[\\\x00-\x1f\x7f]")


@dataclass(frozen=True)
class RunPaths:
    """Folders and files of one run.

    `root` has all runs of the pipeline; models are pushed to `serving`. `checkpoints`
    has the training states; None for a folder that later runs continue from.
    """

    root: Path
    logs: Path
    serving: Path
    checkpoints: Path | None = None

    @property
    def run_id(self) -> str:
        """Id of the run, in ML Metadata too: the name of its log folder."""
        return self.logs.name

    @property
    def artifacts(self) -> Path:
        """Folder of the outputs of all nodes."""
        return self.root / "artifacts"

    @property
    def metadata(self) -> Path:
        """SQLite file of ML Metadata."""
        return self.root / "metadata.sqlite"

    @property
    def log(self) -> Path:
        """File with everything that TFX, Beam and TensorFlow log in this run."""
        return self.logs / "run.log"

    def create(self) -> None:
        """Creates missing folders, and checks that a run can write to all of them.

        Artifacts, metadata and logs are created for their owner alone: they contain the
        data, and only this user's runs read them. The folder that models are pushed to
        gets its mode from the umask, since a model server of another user may read it.
        So does `root`, which contains it by default.
        """
        if not self.metadata.exists() and self.logs.parent.is_dir() and any(self.artifacts.glob("*/*/[0-9]*")):
            raise ConfigurationError(
                f"{self.artifacts} has outputs of earlier runs, and {self.metadata}, which says what they are, is gone; "
                "put it back, or remove the folder or write another --root"
            )
        folder = self.root
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.logs.parent.mkdir(exist_ok=True)
            for folder in (self.artifacts, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
            folder = self.metadata
            self.metadata.touch(mode=0o600)
        except OSError as error:
            raise ConfigurationError(f"cannot create {folder}: {error.strerror}; {_ADVICE}") from error
        for folder in (self.logs, self.artifacts, self.serving):
            existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
            try:
                with tempfile.TemporaryFile(dir=existing):
                    pass
            except OSError as error:
                raise ConfigurationError(f"cannot write to {existing}: {error.strerror}; {_ADVICE}") from error


def run_paths(spec: PipelineSpec, root: str | None = None) -> RunPaths:
    """Decides where a run keeps its files.

    `root` is by default that of `targets.local`, or else `runs/<name>` in the working
    folder.
    """
    settings = spec.targets.local
    if root is not None:
        folder = _resolve("--root", root)
    elif settings.root is not None:
        folder = _resolve("targets.local.root", settings.root)
    else:
        folder = _resolve("the working folder", f"runs/{spec.name}")
    match = _PATTERN_CHARACTERS.search(str(folder))
    if match:
        raise ConfigurationError(
            f"{str(folder)!r} has the character {match[0]!r}, which TFX and Beam read as part of a pattern of file names; "
            "write a --root, or targets.local.root, without it"
        )
    push_directory = spec.push.directory if spec.push else None
    return RunPaths(
        root=folder,
        logs=folder / "logs" / datetime.now().strftime("%Y%m%d-%H%M%S-%f"),
        serving=folder / "serving" if push_directory is None else _resolve("push.directory", push_directory),
    )


def _resolve(setting: str, path: str) -> Path:
    try:
        return files.resolve(path)
    except ConfigurationError as error:
        raise ConfigurationError(f"{setting}: {error}") from error
