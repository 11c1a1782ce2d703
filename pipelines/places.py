"""Where a run on this machine keeps its things."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tfx_distribute.pipelines.spec import PipelineSpec


@dataclass(frozen=True)
class LocalPlaces:
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
        """Creates the folders that do not exist yet.

        Artifacts, metadata and logs are created for their owner alone: they hold the data, and only this user's runs read
        them. The folder that models are pushed to has the mode that the umask gives, since a model server of another user
        may read it; so has `root`, which it is in by default. Whatever exists keeps its mode.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self.logs.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.artifacts, self.logs):
            folder.mkdir(mode=0o700, exist_ok=True)
        self.metadata.touch(mode=0o600)


def local_places(spec: PipelineSpec, root: str | None = None, now: datetime | None = None) -> LocalPlaces:
    """Decides where a run keeps its things.

    Args:
      spec: What the pipeline is.
      root: Folder of all runs of the pipeline; default the spec's, or else `runs/<name>` in the working folder.
      now: When the run begins; names its logs.
    """
    folder = Path(root or spec.targets.local.root or f"runs/{spec.name}").expanduser().resolve()
    pushed = spec.push.directory if spec.push else None
    return LocalPlaces(
        root=folder,
        logs=folder / "logs" / (now or datetime.now()).strftime("%Y%m%d-%H%M%S-%f"),
        serving=Path(pushed).expanduser().resolve() if pushed else folder / "serving",
    )
