"""Tests the digits from the pipeline file to the pushed model, in pods of a cluster.

The API server, the Training Operator, the image, the volume and the permissions are
real. Kubeflow's driver is a stand-in; each step is a pod as Kubeflow makes it.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from kubeflow_pipelines import KubeflowPipelines, Run, StepError
from metadata_service import MetadataService
from real_cluster import Namespace, wait_until
from step_pods import StepPods

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}
TFJOB = JOB_KINDS["tfjob"]
ROOT = "minio://mlpipeline/artifacts"


@dataclass
class Installation:
    """Kubeflow Pipelines in a namespace, with the digits compiled for it.

    Attributes:
      namespace: The namespace.
      steps: Runs its steps.
      pipelines: The installation; it keeps its cache for all tests.
      packages: Name of a variant -> its compiled documents.
    """

    namespace: Namespace
    steps: StepPods
    pipelines: KubeflowPipelines
    packages: dict[str, str] = field(default_factory=dict)

    def run(self, package: str, **parameters: object) -> Run:
        return self.pipelines.run(self.packages[package], parameters, ROOT)

    def pushed(self) -> list[str]:
        listed = self.namespace.run("list", ["sh", "-c", "ls -d /shared/serving/*/saved_model.pb || true"])
        return [line for line in listed.splitlines() if line.startswith("/")]


@pytest.fixture(scope="module")
def installation(namespace, tmp_path_factory, compile_file):
    folder = tmp_path_factory.mktemp("digits")
    shutil.copytree(DIGITS, folder, dirs_exist_ok=True)
    document = yaml.safe_load((folder / "kind.yaml").read_text())
    document["targets"]["kubeflow"] |= {"image": namespace.image, "security_context": {"run_as_non_root": True}}
    steps = StepPods(namespace)
    with MetadataService() as metadata:
        made = Installation(namespace, steps, KubeflowPipelines(steps, metadata))
        workers = ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")
        trains_only = {key: value for key, value in document.items() if key not in ("evaluate", "push")}
        for name, pipeline, words in (
            ("step", document, ()),
            ("tfjob", document, workers),
            ("training only", trains_only, workers),
        ):
            made.packages[name] = compile_file(folder / f"{name}.yaml", pipeline, *words)
        yield made


@pytest.fixture(scope="module")
def compile_file():
    """Returns a function that compiles a pipeline with `tfx-distribute compile`."""
    import subprocess
    import sys

    def compile_document(file: Path, document: dict, *words: str) -> str:
        file.write_text(yaml.safe_dump(document))
        package = file.with_suffix(".package.yaml")
        command = [sys.executable, "-m", "tfx_distribute.pipelines", "compile", str(file), "--target", "kubeflow"]
        subprocess.run([*command, "-o", str(package), *words], check=True, timeout=120)
        return package.read_text()

    return compile_document


def model(run: Run) -> dict:
    return run.outputs["Trainer"]["model"]["metadata"]


def test_one_process_in_the_step(installation):
    run = installation.run("step")
    assert run.steps[-1] == "Pusher"
    assert len(installation.pushed()) == 1
    assert (model(run)["strategy"], model(run)["num_replicas"]) == ("one_device", 1)
    assert run.outputs["Evaluator"]["blessing"]["metadata"]["blessed"] == 1
    assert not installation.namespace.jobs(TFJOB)
    writable = ["find", "/shared/serving", "/shared/training", "-perm", "/o=w"]
    assert not installation.namespace.run("writable", writable), "nobody else can write to what is served"
    again = installation.run("step")
    assert again.cached == again.steps, "the digits declare the version of their data"


def test_two_workers(installation):
    before = len(installation.pushed())
    run = installation.run("tfjob", strategy="multi_worker_mirrored", num_workers=2, epochs=15)
    assert len(installation.pushed()) == before + 1
    assert (model(run)["strategy"], model(run)["num_replicas"], model(run)["num_workers"]) == ("multi_worker_mirrored", 2, 2)
    log = run.logs["Trainer"]
    (job,) = installation.namespace.jobs(TFJOB)
    name = job["metadata"]["name"]
    assert f"created TFJob {name} in namespace {installation.namespace.name}" in log
    assert "Chief 1 active; Worker 1 active" in log
    assert "chief: done; training step" in log
    assert job["metadata"]["ownerReferences"][0]["name"] == installation.steps.pods["Trainer"][-1]
    folder = f"/shared/training/{name}"
    left = installation.namespace.run("left", ["ls", folder]).split()
    assert left == ["followed.json", "job.json", "outputs", "training_result.json"], "copies of examples are gone"
    saves = installation.namespace.run("saves", ["find", "/shared/training/checkpoints", "-type", "f"])
    assert not saves, "and so is the state"


def test_parameter_servers_with_an_evaluator(installation):
    before = len(installation.pushed())
    parameters = {"strategy": "parameter_server", "num_workers": 1, "num_parameter_servers": 1, "num_evaluators": 1}
    run = installation.run("tfjob", **parameters, epochs=40)
    assert len(installation.pushed()) == before + 1
    assert model(run)["training_val_accuracy"] > 0.9, "of the evaluator, which is a process of its own"


def test_a_step_that_is_deleted_continues_in_its_next_pod(installation):
    struck = []

    def strike(step, pod):
        if step.name == "Trainer" and not struck:
            wait_until(lambda: "chief: train; training step" in installation.namespace.log(pod), 120)
            struck.append(pod)
            installation.namespace.delete_pod(pod, grace_seconds=30)

    run = striking(installation, strike, epochs=200)
    first, second = installation.steps.pods["Trainer"][-2:]
    assert struck == [first]
    assert first != second
    assert "continues after training step" in run.logs["Trainer"]


def test_a_worker_that_is_deleted_costs_no_training(installation):
    def strike(step, pod):
        if step.name == "Trainer":
            wait_until(lambda: "chief: train; training step" in installation.namespace.log(pod), 120)
            workers = installation.namespace.pods(**{"training.kubeflow.org/replica-type": "worker"})
            (running,) = [pod for pod in workers if pod.status.phase == "Running"]
            installation.namespace.delete_pod(running.metadata.name, grace_seconds=1)

    run = striking(installation, strike, epochs=201)
    assert "starting it again from its last save" in run.logs["Trainer"]
    assert "continues after training step" in run.logs["Trainer"]


def test_a_run_that_is_terminated_leaves_nothing(installation):
    def strike(step, pod):
        if step.name == "Trainer":
            wait_until(lambda: "chief: train; training step" in installation.namespace.log(pod), 120)
            installation.namespace.delete_pod(pod, grace_seconds=30)

    installation.steps.generation = "2.16"  # which does not try a deleted step again
    try:
        with pytest.raises(StepError, match="The pod's end: Deleted"):
            striking(installation, strike, epochs=202)
    finally:
        installation.steps.generation = "2.17"
    step = installation.steps.pods["Trainer"][-1]

    def is_left():
        owned = [job for job in installation.namespace.jobs(TFJOB) if job["metadata"]["ownerReferences"][0]["name"] == step]
        return owned or any(pod.status.phase == "Running" for pod in installation.namespace.pods())

    wait_until(lambda: not is_left())


def striking(installation: Installation, strike, epochs: int) -> Run:
    """Trains two workers, and lets something happen to a step while it runs."""
    parameters = {"strategy": "multi_worker_mirrored", "num_workers": 2, "epochs": epochs, "save_checkpoints_secs": 2}
    errors = []

    def keeping_errors(step, pod):
        try:
            strike(step, pod)
        except BaseException as error:
            errors.append(error)

    installation.steps.on_start = keeping_errors
    try:
        run = installation.run("training only", **parameters)
    finally:
        installation.steps.on_start = lambda step, pod: None
    assert not errors, errors
    return run
