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
