"""Runs the compiled digits on a cluster, with a stand-in of Kubeflow's driver.

The API server, the operator, the image, the volume and the permissions are real. Each
step is a pod as Kubeflow makes it.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from kubeflow_pipelines import KubeflowPipelines, Run, Step
from metadata_service import MetadataService
from real_cluster import Namespace
from step_pods import StepPods, stored_path

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS
from tfx_distribute.pipelines.cli.main import main

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
ROOT = "minio://mlpipeline/artifacts"
SERVING, TRAINING = "/shared/serving", "/shared/training"  # of kind.yaml
QUEUE = "team"
METRICS_PORT = 9400
TWO_WORKERS = {"strategy": "multi_worker_mirrored", "num_workers": 2}
TRAIN_ONLY = ("evaluate", "push")  # to leave out
SEARCH = {"objective": "val_accuracy", "max_trials": 2, "space": {"hidden_units": {"values": [32, 128]}}}


@dataclass
class Installation:
    """Kubeflow Pipelines in a namespace, and the digits.

    Attributes:
      namespace: The namespace.
      folder: Folder with the pipeline's files.
      steps: Runs its steps.
      pipelines: The installation; it keeps its cache.
      packages: Words that name a variant -> its compiled documents.
    """

    namespace: Namespace
    folder: Path
    steps: StepPods
    pipelines: KubeflowPipelines
    packages: dict[tuple[str, ...], str] = field(default_factory=dict)

    def run(self, *variant: str, **parameters: object) -> Run:
        """Runs a variant of the pipeline; compiles it the first time.

        Args:
          *variant: A kind of job, for training in its pods; parts of the pipeline file
            to leave out; `queue` for training in the queue `team`; `tune` for a search;
            `watched` for metrics and structured logs of training processes; and
            `base_model=ADDRESS` to start from a model.
          **parameters: Parameters of the run.
        """
        if variant not in self.packages:
            self.packages[variant] = self._compile(variant)
        return self.pipelines.run(self.packages[variant], parameters, ROOT)

    def run_and_strike(self, *variant: str, strike: Callable[[Step, str], None], **parameters: object) -> Run:
        """Runs a variant, and calls `strike` with each step and its pod when it runs.

        Raises:
          AssertionError: `strike` raised an error.
        """
        errors = []

        def keep_errors(step: Step, pod: str) -> None:
            try:
                strike(step, pod)
            except BaseException as error:
                errors.append(error)

        self.steps.on_start = keep_errors
        try:
            run = self.run(*variant, **parameters)
        finally:
            self.steps.on_start = lambda step, pod: None
        assert not errors, errors
        return run

    def _compile(self, variant: tuple[str, ...]) -> str:
        document = yaml.safe_load((self.folder / "kind.yaml").read_text())
        target, words = document["targets"]["kubeflow"], []
        target |= {"image": self.namespace.image, "security_context": {"run_as_non_root": True}}
        document["evaluate"]["metrics"]["MultiClassConfusionMatrixPlot"] = {}
        for each in variant:
            if each in JOB_KINDS:
                target["training"] = each
                words = [word for name, value in TWO_WORKERS.items() for word in ("-p", f"{name}={value}")]
            elif each == "queue":
                target["queue"] = QUEUE
            elif each == "tune":
                document["tune"] = SEARCH
            elif each == "watched":
                target |= {"metrics_port": METRICS_PORT, "log_format": "json"}
            elif each.startswith("base_model="):
                document["trainer"]["base_model"] = each.removeprefix("base_model=")
            else:
                del document[each]
        file = self.folder / f"{len(self.packages)}.yaml"
        file.write_text(yaml.safe_dump(document))
        package = file.with_suffix(".package.yaml")
        # Not in a process for each variant, which would import TFX each time.
        command = ["compile", str(file), "--target", "kubeflow", "-o", str(package), *words]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
        return package.read_text()

    def pushed(self) -> list[str]:
        listed = self.namespace.run("list", ["sh", "-c", f"ls -d {SERVING}/*/saved_model.pb || true"])
        return [line for line in listed.splitlines() if line.startswith("/")]

    def read(self, uri: str, *names: str) -> str:
        """Returns what the object store has at an address: of a file, or of its files.

        Args:
          uri: Address of an artifact.
          *names: Patterns of files below it; none if it is a file itself.
        """
        path = f"/shared/{stored_path(uri)}"
        files = " ".join(f"{path}/{name}" for name in names) or path
        return self.namespace.run("read", ["sh", "-c", f"cat {files}"])


@contextlib.contextmanager
def install(namespace: Namespace, folder: Path) -> Iterator[Installation]:
    """Returns an installation that runs the digits.

    Args:
      namespace: The namespace.
      folder: Folder for the pipeline's files.
    """
    shutil.copytree(DIGITS, folder, dirs_exist_ok=True)
    steps = StepPods(namespace)
    with MetadataService() as metadata:
        yield Installation(namespace, folder, steps, KubeflowPipelines(steps, metadata))


def model(run: Run) -> dict[str, Any]:
    """Returns the properties of the model that a run trained."""
    return dict(run.outputs["Trainer"]["model"]["metadata"])
