"""Runs the compiled digits on a cluster, with a stand-in of Kubeflow's driver.

The API server, the operator, the image, the volume and the permissions are real. Each
step is a pod as Kubeflow makes it.
"""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubeflow_pipelines import KubeflowPipelines, Run, Step
from metadata_service import MetadataService
from real_cluster import Namespace
from step_pods import StepPods

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
ROOT = "minio://mlpipeline/artifacts"
SERVING, TRAINING = "/shared/serving", "/shared/training"  # of kind.yaml
TWO_WORKERS = {"strategy": "multi_worker_mirrored", "num_workers": 2}


@dataclass
class Installation:
    """Kubeflow Pipelines in a namespace, with the digits compiled for it.

    Attributes:
      namespace: The namespace.
      steps: Runs its steps.
      pipelines: The installation; it keeps its cache.
      packages: Name of a variant -> its compiled documents.
    """

    namespace: Namespace
    steps: StepPods
    pipelines: KubeflowPipelines
    packages: dict[str, str]

    def run(self, package: str, **parameters: object) -> Run:
        return self.pipelines.run(self.packages[package], parameters, ROOT)

    def run_and_strike(self, package: str, strike: Callable[[Step, str], None], **parameters: object) -> Run:
        """Runs a package, and calls `strike` with each step and its pod when it runs.

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
            run = self.run(package, **parameters)
        finally:
            self.steps.on_start = lambda step, pod: None
        assert not errors, errors
        return run

    def pushed(self) -> list[str]:
        listed = self.namespace.run("list", ["sh", "-c", f"ls -d {SERVING}/*/saved_model.pb || true"])
        return [line for line in listed.splitlines() if line.startswith("/")]

    @contextlib.contextmanager
    def sharing_cache(self) -> Iterator["Installation"]:
        """Returns another one in the same namespace, for runs at the same time."""
        steps = StepPods(self.namespace)
        with MetadataService() as metadata:
            pipelines = KubeflowPipelines(steps, metadata, cache=self.pipelines.cache)
            yield Installation(self.namespace, steps, pipelines, self.packages)


@contextlib.contextmanager
def install(namespace: Namespace, folder: Path, settings: Mapping[str, Any] | None = None) -> Iterator[Installation]:
    """Compiles the digits, and returns an installation to run them.

    Args:
      namespace: The namespace.
      folder: Folder for the compiled documents.
      settings: More of `targets.kubeflow`.
    """
    shutil.copytree(DIGITS, folder, dirs_exist_ok=True)
    document = yaml.safe_load((folder / "kind.yaml").read_text())
    document["targets"]["kubeflow"] |= {
        "image": namespace.image,
        "security_context": {"run_as_non_root": True},
        **(settings or {}),
    }
    unevaluated = {key: value for key, value in document.items() if key != "evaluate"}
    trains_only = {key: value for key, value in unevaluated.items() if key != "push"}
    workers = [word for name, value in TWO_WORKERS.items() for word in ("-p", f"{name}={value}")]
    packages = {
        name: _compile(folder / f"{name}.yaml", pipeline, words)
        for name, pipeline, words in (
            ("one process", document, []),
            ("many processes", document, workers),
            ("without evaluation", unevaluated, workers),
            ("training only", trains_only, workers),
        )
    }
    steps = StepPods(namespace)
    with MetadataService() as metadata:
        yield Installation(namespace, steps, KubeflowPipelines(steps, metadata), packages)


def _compile(file: Path, document: Mapping[str, Any], words: list[str]) -> str:
    file.write_text(yaml.safe_dump(document))
    package = file.with_suffix(".package.yaml")
    command = [sys.executable, "-m", "tfx_distribute.pipelines", "compile", str(file), "--target", "kubeflow"]
    subprocess.run([*command, "-o", str(package), *words], check=True, timeout=120)
    return package.read_text()


def model(run: Run) -> dict[str, Any]:
    """Returns the properties of the model that a run trained."""
    return dict(run.outputs["Trainer"]["model"]["metadata"])
