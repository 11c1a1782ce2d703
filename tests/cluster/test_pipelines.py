"""Tests the digits from the pipeline file to the pushed model, in pods of a cluster.

The API server, the Training Operator, JobSet, the image, the volume and the permissions
are real. Kubeflow's driver is a stand-in; each step is a pod as Kubeflow makes it.

Each training in pods takes most of a minute. So there is one for several questions, and
what holds for any job is tested with shell commands, in test_jobs.
"""

import json
import re

import pytest
from digits_on_cluster import METRICS_PORT, SEARCH, SERVING, TRAIN_ONLY, TRAINING, TWO_WORKERS, Installation, model
from kubeflow_pipelines import Run
from pod_faults import RunningTraining
from real_cluster import wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS, JobKind
from tfx_distribute.trainer_module.job.time_use import ACTIVITIES
from tfx_distribute.trainer_module.reporting import history

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}


def test_one_process_in_the_step(installation):
    run = installation.run(*TRAIN_ONLY)
    assert (model(run)["strategy"], model(run)["num_replicas"]) == ("one_device", 1)
    assert not [job for kind in JOB_KINDS.values() for job in installation.namespace.jobs(kind)]


def test_two_workers(installation):
    """A TFJob, up to the pushed model, with what people look at meanwhile and after."""
    kind = JOB_KINDS["tfjob"]
    metrics = {}

    def watch(step, pod):
        if step.name == "Trainer":
            training = RunningTraining(installation.namespace, kind, pod)
            metrics.update({role: wait_for_metrics(training, role) for role in ("chief", "worker")})

    run = installation.run_and_strike(kind.name, "watched", strike=watch, **TWO_WORKERS, epochs=30)
    assert run.steps[-1] == "Pusher"
    assert run.outputs["Evaluator"]["blessing"]["metadata"]["blessed"] == 1
    check_training_in_pods(installation, kind, run, pods=2)
    assert (model(run)["strategy"], model(run)["num_replicas"], model(run)["num_workers"]) == ("multi_worker_mirrored", 2, 2)
    for role, text in metrics.items():
        assert re.search(rf'^tfx_distribute_training_step{{task="{role}-0"}} [1-9]', text, re.M)
        assert f'tfx_distribute_training_time_seconds_total{{activity="compute",task="{role}-0"}}' in text
        assert f'tfx_distribute_training_metric{{name="loss",task="{role}-0"}}' in text
    check_history(installation, run, epochs=30)
    check_report(installation, run)
    writable = ["find", SERVING, TRAINING, "-perm", "/o=w"]
    assert not installation.namespace.run("writable", writable), "nobody else can write to what is served"
    again = installation.run(kind.name, "watched", **TWO_WORKERS, epochs=30)
    assert again.cached == again.steps[:-1], "the digits declare the version of their data"
    assert again.steps[-1] == "Pusher", "it sees what is served"
    assert len(installation.pushed()) == 1


def test_parameter_servers_from_an_earlier_model(installation):
    """A JobSet; test_struck_trainings has two workers in one."""
    base_model = installation.run(*TRAIN_ONLY).outputs["Trainer"]["model"]["uri"]
    parameters = {"strategy": "parameter_server", "num_workers": 1, "num_parameter_servers": 1}
    run = installation.run("jobset", f"base_model={base_model}", *TRAIN_ONLY, **parameters, epochs=1)
    check_training_in_pods(installation, JOB_KINDS["jobset"], run, pods=3)
    assert model(run)["base_model"] == base_model
    assert (model(run)["base_model_weights_taken"], model(run)["base_model_weights_skipped"]) == (6, 0)
    assert model(run)["training_val_accuracy"] > 0.9, "one epoch does not reach that from scratch"


def test_search(installation):
    """Each trial is a job of its own, and the Trainer takes the best values."""
    run = installation.run("tfjob", "tune", *TRAIN_ONLY, **TWO_WORKERS, epochs=3)
    log = run.logs["Tuner"]
    names = re.findall(r"created TFJob (\S+) in namespace", log)
    assert len(set(names)) == SEARCH["max_trials"]
    values = dict(re.findall(r"trial (\d): val_accuracy (\S+)", log))
    assert sorted(values) == ["0", "1"]
    assert run.steps.index("Tuner") < run.steps.index("Trainer")
    assert model(run)["num_workers"] == 2
    left = installation.namespace.run("searches", ["sh", "-c", f"find {TRAINING}/checkpoints -type f"])
    assert not left, "the states of the trials are gone"


def check_training_in_pods(installation: Installation, kind: JobKind, run: Run, pods: int) -> None:
    log = run.logs["Trainer"]
    (job,) = [job for job in installation.namespace.jobs(kind) if owner(job) == installation.steps.pods["Trainer"][-1]]
    name = job["metadata"]["name"]
    assert f"created {kind.title} {name} in namespace {installation.namespace.name}" in log
    assert f"active, {pods} of {pods} pods run" in log
    assert "chief: done; training step" in log
    script = f"ls {TRAINING}/{name}; find {TRAINING}/checkpoints -type f"
    left = installation.namespace.run("left", ["sh", "-c", script]).split()
    assert left == ["followed.json", "job.json", "outputs", "training_result.json"], "copies and the state are gone"


def owner(job: dict) -> str:
    return job["metadata"]["ownerReferences"][0]["name"]


def wait_for_metrics(training: RunningTraining, role: str) -> str:
    """Returns the metrics of a process once it trains."""
    pod = training.running(role).metadata

    def text() -> str | None:
        served = training.namespace.get(pod.name, METRICS_PORT, "metrics")
        return served if 'name="loss"' in served else None

    assert pod.annotations["prometheus.io/port"] == str(METRICS_PORT)
    metrics: str = wait_until(text, 120)
    log = [line for line in training.namespace.log(pod.name).splitlines() if line.startswith('{"phase":"start"')]
    assert json.loads(log[0])["task"] == f"{role}-0"
    return metrics


def check_history(installation: Installation, run: Run, epochs: int) -> None:
    """Checks that every process's history is in the object store, up to the end."""
    lines = installation.read(run.outputs["Trainer"]["model_run"]["uri"], f"{history.FOLDER}/*.jsonl")
    records = history.parse(lines.splitlines())
    assert len(records) == len(lines.splitlines())
    assert {record.task for record in records} == {"chief-0", "worker-0"}
    chief = [record for record in records if record.task == "chief-0"]
    assert chief[-1].phase == "done"
    last_epoch = [record for record in chief if record.phase == "epoch"][-1]
    assert last_epoch.epoch == epochs
    assert last_epoch.metrics["val_accuracy"] > 0.9
    use = history.time_use(records)
    assert [process.task for process in use.processes] == ["chief-0", "worker-0"]
    assert all(process.counters["cpu_seconds"] > 0 for process in use.processes)
    shares = [model(run)[f"time_{activity}"] for activity in ACTIVITIES]
    assert sum(shares) == pytest.approx(1, abs=1e-5), "ML Metadata keeps six decimals of each"
    assert use.share("wait_for_peers") == pytest.approx(model(run)["time_wait_for_peers"], abs=0.1)


def check_report(installation: Installation, run: Run) -> None:
    """Checks what the pages of Kubeflow Pipelines show of the evaluation."""
    outputs = run.outputs["Evaluator"]
    page = installation.read(outputs["html"]["uri"])
    assert page.startswith("<!doctype html>")
    for shown in ("SparseCategoricalAccuracy", "multi_worker_mirrored", "val_accuracy", "<svg", "chief-0", "worker-0"):
        assert shown in page
    assert 0.95 < outputs["metrics"]["metadata"]["SparseCategoricalAccuracy"] <= 1
    matrix = outputs["classification_metrics"]["metadata"]["confusionMatrix"]["struct"]
    assert len(matrix["annotationSpecs"]) == 10
    assert sum(sum(row["row"]) for row in matrix["rows"]) == outputs["metrics"]["metadata"]["ExampleCount"]
