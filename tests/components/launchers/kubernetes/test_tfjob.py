"""Tests TFJobs: manifests against expected documents, and what statuses say."""

from dataclasses import replace

import pytest
import yaml
from pod_settings import DISTRIBUTIONS, SETTINGS

from tfx_distribute.components.launchers.kubernetes.pod_template import Step
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.components.launchers.kubernetes.tfjob import TFJob
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.components.trainer.places import job_name
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import tasks_of
from tfx_distribute.trainer_module.job.training_job import Distribution


def make(distribution: Distribution, settings: KubernetesSettings = SETTINGS) -> dict:
    training = Training("digits-1", "/shared/training/digits-1/job.json", distribution, {"TF_USE_LEGACY_KERAS": "1"}, 3)
    return TFJob().make_manifest(training, settings, Step("trainer-pod", "1b4b5a5e", "runner", 1000, 1000))


@pytest.mark.parametrize("strategy", DISTRIBUTIONS)
def test_tfjob_of_each_strategy(strategy, expected):
    processes = len(tasks_of(DISTRIBUTIONS[strategy]))
    expected(f"tfjob/{strategy if processes > 1 else 'default'}", make(DISTRIBUTIONS[strategy]))


def test_queue():
    manifest = make(DISTRIBUTIONS["parameter_server"], replace(SETTINGS, queue="team-a"))
    assert manifest["metadata"]["labels"] == {"team": "a", "kueue.x-k8s.io/queue-name": "team-a"}


def test_reduction_servers_need_vertex_ai():
    with pytest.raises(
        ConfigurationError, match="reduction_server is Vertex AI's, and Kubeflow has none; write all_reduce=nccl"
    ):
        make(Distribution("multi_worker_mirrored", num_workers=2, all_reduce="reduction_server"))


def test_names_are_dns_labels_with_room_for_pods():
    name = job_name("1-digits-of-a-pipeline-with-a-very-long-name-indeed-and-more", "s3://b/run/1/model")
    assert name == job_name("1-digits-of-a-pipeline-with-a-very-long-name-indeed-and-more", "s3://b/run/1/model")
    assert name.startswith("tfx-1-digits")
    assert len(f"{name}-worker-100-0-abcde") <= 63
    assert name != job_name("1-digits-of-a-pipeline-with-a-very-long-name-indeed-and-more", "s3://b/run/2/model")


def test_manifests_are_plain_yaml():
    assert yaml.safe_load(yaml.safe_dump(make(Distribution()))) == make(Distribution())


def read(status: dict, **spec: object):
    return TFJob().read_state({"metadata": {"name": "digits-1", "uid": "u"}, "spec": spec, "status": status})


def condition(kind: str, status: str = "True") -> dict:
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:05Z", "message": f"it is {kind}"}


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ([], "active"),
        ([condition("Created"), condition("Running")], "active"),
        ([condition("Created"), condition("Running", "False"), condition("Restarting")], "active"),
        ([condition("Created"), condition("Suspended", "False"), condition("Running")], "active"),
        ([condition("Created"), condition("Failed")], "failed"),
        ([condition("Failed"), condition("Succeeded")], "succeeded"),
    ],
)
def test_states(conditions, phase):
    assert read({"conditions": conditions}).phase == phase


def test_only_the_spec_says_that_it_is_suspended():
    conditions = [condition("Suspended")]
    assert read({"conditions": conditions}, runPolicy={"suspend": True}).phase == "suspended"
    assert read({"conditions": conditions}, runPolicy={"suspend": False}).phase == "active"
    assert read({"conditions": [condition("Failed")]}, runPolicy={"suspend": True}).phase == "failed"


def test_the_reason_of_an_end():
    assert read({"conditions": [condition("Failed")]}).reason == "it is Failed"
