"""Provides the digits as examples, and a cluster that trains on them.

For tests, benchmarks and the soak test.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    Outputs,
    Split,
    TrainingData,
    TrainingJob,
    TrainingOptions,
    TrainingResult,
    UserModule,
)
from tfx_distribute.trainer_module.reporting.progress import Progress

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def write_digits(folder: Path) -> TrainingData:
    """Writes scikit-learn's digits as TFRecords, with a schema.

    1,400 are for training, 397 are held out.
    """
    import numpy as np
    from sklearn.datasets import load_digits
    from tf_examples import make_example, make_schema, write_examples

    digits = load_digits()
    # scikit-learn has them in the order of their writers.
    order = np.random.default_rng(0).permutation(len(digits.target))

    def write(name: str, rows: np.ndarray) -> Split:
        pairs = zip(digits.data[rows] / 16.0, digits.target[rows], strict=True)
        write_examples(folder / f"{name}.gz", (make_example(pixels=pixels, digit=digit) for pixels, digit in pairs), "GZIP")
        return Split((str(folder / f"{name}.gz"),), len(rows))

    schema = folder / "schema.pbtxt"
    schema.write_text(make_schema(pixels=("FLOAT", 64), digit=("INT", 1)))
    return TrainingData(
        train=write("train", order[:1400]),
        eval=write("eval", order[1400:]),
        label="digit",
        transform_graph=None,
        schema=str(schema),
    )


@dataclass
class TrainingCluster:
    """Trains jobs as processes on loopback, as the Trainer does.

    Attributes:
      job: The job to train; arguments of `train` override its fields.
      folder: Folder for logs and other files.
      server: The fork server to use, or None.
      gpus: GPUs to divide among the processes; None for those of this machine.
      reports: Reports of the processes of the last training.
    """

    job: TrainingJob
    folder: Path
    server: object
    gpus: tuple[str, ...] | None = None
    reports: list[tuple[ClusterTask, Progress]] = field(default_factory=list)

    def train(
        self,
        distribution: Distribution | None = None,
        training_options: TrainingOptions | None = None,
        on_progress: Callable[[ClusterTask, Progress], None] | None = None,
        **changes: object,
    ) -> TrainingResult:
        """Trains the job and returns the result.

        Args:
          distribution: Replaces that of the job.
          training_options: Replaces that of the job.
          on_progress: Called with each report.
          **changes: Other fields of the job to replace.
        """
        from tfx_distribute.components.launchers.local import launcher as local_launcher

        self.reports.clear()
        job = replace(
            self.job,
            distribution=distribution or self.job.distribution,
            training_options=training_options or self.job.training_options,
            **changes,  # type: ignore[arg-type]
        )

        def listen(task: ClusterTask, progress: Progress) -> None:
            self.reports.append((task, progress))
            if on_progress:
                on_progress(task, progress)

        settings = local_launcher.LocalLauncherSettings(
            log_dir=self.logs,
            on_progress=listen,
            server=self.server,  # type: ignore[arg-type]
            gpus=self.gpus,
        )
        with local_launcher.settings(settings):
            return local_launcher.launch(job, str(self.folder))

    def messages(self, role: str = "chief") -> list[str]:
        """Returns the messages of the last training's processes of a role.

        Without those about a slow process, as this machine may be busy.
        """
        found = [progress.message for task, progress in self.reports if task.role == role]
        return [message for message in found if message and "holds the others back" not in message]

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def exporting(self) -> "TrainingCluster":
        """Makes it export models, a third of a short training; returns the cluster."""
        self.job = replace(self.job, outputs=replace(self.job.outputs, serving_model_dir=str(self.model)))
        return self


def make_job(**fields: Any) -> TrainingJob:
    """Makes a job without data, for tests in which nothing trains."""
    module, options, outputs = UserModule("model.build_model"), TrainingOptions(epochs=1), Outputs("", "", "")
    return replace(TrainingJob(module, None, Distribution(), options, outputs), **fields)


def digits_cluster(folder: Path, digits: TrainingData, server: object) -> TrainingCluster:
    """Returns a cluster that trains the example's model on the digits.

    It exports models only after a call of `exporting`.
    """
    job = TrainingJob(
        module=UserModule("model.build_model", (str(EXAMPLES / "digits"),)),
        data=digits,
        distribution=Distribution(accelerator_type="cpu"),
        training_options=TrainingOptions(per_replica_batch_size=64, epochs=2),
        outputs=Outputs("", str(folder / "run"), str(folder / "result.json")),
        hparams={"hidden_units": 64, "learning_rate": 0.002},
    )
    return TrainingCluster(job, folder, server)
