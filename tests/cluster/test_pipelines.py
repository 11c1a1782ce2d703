"""Tests the digits from the pipeline file to the pushed model, in pods of a cluster.

The API server, the Training Operator, the image, the volume and the permissions are
real. Kubeflow's driver is a stand-in; each step is a pod as Kubeflow makes it.
"""

import re

import pytest
from digits_on_cluster import SEARCH, SERVING, TRAINING, TWO_WORKERS, model

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}


def test_one_process_in_the_step(installation):
    run = installation.run()
    assert run.steps[-1] == "Pusher"
    assert len(installation.pushed()) == 1
    assert (model(run)["strategy"], model(run)["num_replicas"]) == ("one_device", 1)
    assert run.outputs["Evaluator"]["blessing"]["metadata"]["blessed"] == 1
    assert not [job for kind in JOB_KINDS.values() for job in installation.namespace.jobs(kind)]
    writable = ["find", SERVING, TRAINING, "-perm", "/o=w"]
    assert not installation.namespace.run("writable", writable), "nobody else can write to what is served"
    again = installation.run()
    assert again.cached == again.steps, "the digits declare the version of their data"


def test_two_workers(installation, kind):
    before = len(installation.pushed())
    run = installation.run(kind.name, **TWO_WORKERS, epochs=15)
    assert len(installation.pushed()) == before + 1
    assert (model(run)["strategy"], model(run)["num_replicas"], model(run)["num_workers"]) == ("multi_worker_mirrored", 2, 2)
    log = run.logs["Trainer"]
    (job,) = installation.namespace.jobs(kind)
    name = job["metadata"]["name"]
    assert f"created {kind.title} {name} in namespace {installation.namespace.name}" in log
    assert "chief 1 active; worker 1 active" in log.lower()
    assert "chief: done; training step" in log
    assert job["metadata"]["ownerReferences"][0]["name"] == installation.steps.pods["Trainer"][-1]
    left = installation.namespace.run("left", ["ls", f"{TRAINING}/{name}"]).split()
    assert left == ["followed.json", "job.json", "outputs", "training_result.json"], "copies of examples are gone"
    saves = installation.namespace.run("saves", ["find", f"{TRAINING}/checkpoints", "-type", "f"])
    assert not saves, "and so is the state"


def test_parameter_servers_with_an_evaluator(installation, kind):
    before = len(installation.pushed())
    parameters = {"strategy": "parameter_server", "num_workers": 1, "num_parameter_servers": 1, "num_evaluators": 1}
    run = installation.run(kind.name, **parameters, epochs=40)
    assert len(installation.pushed()) == before + 1
    assert model(run)["training_val_accuracy"] > 0.9, "of the evaluator, which is a process of its own"


def test_search(installation):
    """Each trial is a job of its own, and the Trainer takes the best values."""
    run = installation.run("tfjob", "tune", "evaluate", "push", **TWO_WORKERS, epochs=3)
    log = run.logs["Tuner"]
    names = re.findall(r"created TFJob (\S+) in namespace", log)
    assert len(set(names)) == SEARCH["max_trials"]
    values = dict(re.findall(r"trial (\d): val_accuracy (\S+)", log))
    assert sorted(values) == ["0", "1"]
    assert run.steps.index("Tuner") < run.steps.index("Trainer")
    assert model(run)["num_workers"] == 2
    left = installation.namespace.run("searches", ["sh", "-c", f"find {TRAINING}/checkpoints -type f"])
    assert not left, "the states of the trials are gone"


def test_training_from_an_earlier_model(installation):
    base_model = installation.run().outputs["Trainer"]["model"]["uri"]
    run = installation.run("tfjob", f"base_model={base_model}", "evaluate", "push", **TWO_WORKERS, epochs=1)
    assert model(run)["base_model"] == base_model
    assert (model(run)["base_model_weights_taken"], model(run)["base_model_weights_skipped"]) == (6, 0)
    assert model(run)["training_val_accuracy"] > 0.9, "one epoch does not reach that from scratch"
