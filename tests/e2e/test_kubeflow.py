"""Tests a pipeline on Kubeflow Pipelines, from its file to the pushed model.

Kubeflow itself, the Kubernetes API and the Training Operator are stand-ins; the
compiled document, each step's command, the TFJob, its pods' commands, TFX, Beam,
TensorFlow and ML Metadata are real.
"""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import tensorflow as tf
import yaml
from kubeflow_pipelines import KubeflowPipelines, Run
from kubernetes_api import ApiServer
from metadata_service import MetadataService
from step_processes import StepProcesses
from training_operator import TrainingOperator

# Every step of every run is a process that imports TFX.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"
ROOT = "minio://mlpipeline/v2/artifacts"


@dataclass
class Installation:
    """A Kubeflow Pipelines installation on a cluster with a volume."""

    folder: Path
    claim: Path
    steps: StepProcesses
    pipelines: KubeflowPipelines
    api: ApiServer
    metadata: MetadataService

    def package(self, command, example: str, *words: str, **changes: object) -> str:
        """Compiles an example for this installation with `tfx-distribute compile`."""
        folder = self.folder / example
        shutil.copytree(EXAMPLES / example, folder, dirs_exist_ok=True)
        file = folder / "pipeline.yaml"
        # The stand-ins mount nothing: the folder of the claim is at its mount path.
        text = (EXAMPLES / "digits" / "kubeflow.yaml").read_text().replace("/shared", str(self.claim))
        shown = yaml.safe_load(text)
        shown["targets"]["kubeflow"]["metadata_service"] = self.metadata.address
        document = yaml.safe_load(file.read_text())
        document |= {name: shown[name] for name in ("push", "resources", "targets")}
        file.write_text(yaml.safe_dump(document | changes))
        # A process that was given GPUs does not train on the CPU unless it is told to.
        words = ("-p", "accelerator_type=cpu", *words)
        done = command("compile", file, "--target", "kubeflow", "-o", self.folder / f"{example}.yaml", *words)
        assert done.code == 0, done.output
        # The content of the image.
        self.steps.environment = {**self.steps.environment, "PYTHONPATH": str(file.parent)}
        return (self.folder / f"{example}.yaml").read_text()


@pytest.fixture
def installation(tmp_path, monkeypatch):
    pods = tmp_path / "pods"
    claim = pods / "claims" / "training"
    claim.mkdir(parents=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "digits"))  # of the pods: the content of their image
    with MetadataService() as metadata, ApiServer() as api, TrainingOperator(api, pods):
        api.write_kubeconfig(tmp_path / "kubeconfig", namespace="team")
        environment = {"PATH": path, "KUBECONFIG": str(tmp_path / "kubeconfig"), "TF_CPP_MIN_LOG_LEVEL": "2"}
        (tmp_path / "kfp").mkdir()
        steps = StepProcesses(tmp_path / "kfp", environment)
        yield Installation(tmp_path, claim, steps, KubeflowPipelines(steps, metadata), api, metadata)


def pushed(installation: Installation) -> list[Path]:
    return sorted((installation.claim / "serving").glob("*/saved_model.pb"))


def model(run: Run) -> dict:
    return run.outputs["Trainer"]["model"]["metadata"]


def test_digits_on_pods_of_a_tfjob(installation, command):
    package = installation.package(command, "digits")
    parameters = {"strategy": "multi_worker_mirrored", "num_workers": 2, "num_evaluators": 1, "epochs": 15}
    run = installation.pipelines.run(package, parameters, ROOT)
    assert run.steps[-1] == "Pusher"
    (one,) = pushed(installation)
    assert tf.saved_model.load(str(one.parent)).signatures["serving_default"]
    assert (model(run)["strategy"], model(run)["num_replicas"], model(run)["num_workers"]) == ("multi_worker_mirrored", 2, 2)
    assert model(run)["training_val_accuracy"] > 0.9, "of the evaluator, which is a process of its own"
    assert run.outputs["Evaluator"]["blessing"]["metadata"]["blessed"] == 1

    (job,) = installation.api.objects("tfjobs")
    replicas = job["spec"]["tfReplicaSpecs"]
    assert {kind: spec["replicas"] for kind, spec in replicas.items()} == {"Chief": 1, "Worker": 1, "Evaluator": 1}
    log = run.logs["Trainer"]
    name = job["metadata"]["name"]
    assert f"created TFJob {name} in namespace team" in log
    assert f"TFJob {name}: Running; Chief 1 active; Evaluator 1 active; Worker 1 active" in log
    assert "chief: done; training step" in log
    assert f"TFJob {name}: Succeeded" in log
    owner = job["metadata"]["ownerReferences"][0]
    assert owner["name"].startswith("trainer-"), "the pod of the step"
    training = installation.claim / "training"
    left = sorted(path.name for path in (training / name).iterdir())
    assert left == ["followed.json", "job.json", "outputs", "training_result.json"], "copies of examples are gone"
    assert not [path for path in (training / "checkpoints").rglob("*") if path.is_file()], "and so is the state"

    second = installation.pipelines.run(package, parameters, ROOT)
    assert second.cached == second.steps, "the digits declare the version of their data"


def test_taxi_in_steps_with_cache_and_baseline(installation, command):
    """Trains in the step; inspects the data in each run; reuses unchanged results."""
    data = installation.claim / "data"
    shutil.copytree(Path(tf.__file__).parents[1] / "tfx/examples/chicago_taxi_pipeline/data/simple", data)
    package = installation.package(command, "taxi", data={"csv": str(data), "splits": {"train": 2, "eval": 1}})
    installation.pipelines.output_file = "tmp"  # as before 2.15
    first = installation.pipelines.run(package, {}, ROOT)
    assert first.cached == []
    assert first.parameters["latest-blessed-model"] == {"uri": f"{ROOT}/no-blessed-model"}
    assert "baseline" not in first.outputs["Evaluator"]["blessing"]["metadata"]
    assert len(pushed(installation)) == 1
    assert json.loads(first.parameters["CsvExampleGen-input"]["resolved_input"])["span"] == 0
    examples = first.outputs["CsvExampleGen"]["examples"]["metadata"]
    assert "total_bytes" in examples["input_fingerprint"]

    second = installation.pipelines.run(package, {}, ROOT)
    assert "CsvExampleGen-input" not in second.cached
    assert {"CsvExampleGen", "Transform", "Trainer"} < set(second.cached)
    assert "Evaluator" not in second.cached, "there is a model to compare with now"
    blessed = first.outputs["Trainer"]["model"]["uri"]
    assert second.parameters["latest-blessed-model"] == {"uri": blessed}
    assert second.outputs["Evaluator"]["blessing"]["metadata"]["baseline_model"] == blessed
