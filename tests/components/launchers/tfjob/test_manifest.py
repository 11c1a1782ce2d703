"""Tests the manifests of TFJobs against expected documents and the operator's rules."""

from dataclasses import replace

import pytest
import yaml
from kubernetes_api import ApiServer

from tfx_distribute.components.launchers.tfjob import manifest as tfjob_manifest
from tfx_distribute.components.launchers.tfjob.manifest import TFJobSettings
from tfx_distribute.components.trainer.remote_training import job_name
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution

IMAGE = "registry.example.com/digits:1"


def pod(**limits: str) -> dict:
    container = {"name": "tensorflow", "image": IMAGE, "resources": {"limits": limits}}
    return {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [container]}}


SETTINGS = TFJobSettings(
    name="digits",
    worker=pod(**{"nvidia.com/gpu": "2", "memory": "32Gi"}),
    parameter_server=pod(memory="8Gi"),
    training_dir="/shared/training",
    labels={"team": "a"},
)
DISTRIBUTIONS = {
    "default": Distribution(),
    "one_device": Distribution("one_device"),
    "mirrored": Distribution("mirrored", accelerator_count=2),
    "central_storage": Distribution("central_storage", accelerator_count=2),
    "multi_worker_mirrored": Distribution("multi_worker_mirrored", num_workers=3, num_evaluators=1),
    "parameter_server": Distribution("parameter_server", num_workers=2, num_parameter_servers=2, num_evaluators=1),
    "tpu": Distribution("tpu"),
    "model_parallel": Distribution("model_parallel", mesh="1x2"),
}


def make(distribution: Distribution, settings: TFJobSettings = SETTINGS) -> dict:
    owner = tfjob_manifest.Owner("trainer-pod", "1b4b5a5e")
    return tfjob_manifest.make_manifest(
        "digits-1", "/shared/training/digits-1/job.json", distribution, {"TF_USE_LEGACY_KERAS": "1"}, settings, owner
    )


@pytest.mark.parametrize("strategy", DISTRIBUTIONS)
def test_tfjob_of_each_strategy(strategy, expected):
    expected(f"tfjob/{strategy}", make(DISTRIBUTIONS[strategy]))


def test_the_operator_accepts_each(tmp_path):
    """Checks the CRD's schema and the webhook's rules that the fake knows."""
    from kubernetes import client, config

    queued = replace(SETTINGS, queue="team-a", scheduling_policy={"queue": "q"}, active_deadline_seconds=60)
    with ApiServer() as api:
        api.write_kubeconfig(tmp_path / "kubeconfig")
        config.load_kube_config(str(tmp_path / "kubeconfig"))
        for number, distribution in enumerate(DISTRIBUTIONS.values()):
            for settings in (SETTINGS, queued):
                manifest = make(distribution, settings)
                manifest["metadata"]["name"] = f"digits-{number}-{settings is queued}".lower()
                client.CustomObjectsApi().create_namespaced_custom_object(
                    "kubeflow.org", "v1", "default", "tfjobs", manifest
                )


def test_queues_and_gangs():
    settings = replace(SETTINGS, queue="team-a", scheduling_policy={"queue": "training"}, active_deadline_seconds=60)
    manifest = make(DISTRIBUTIONS["parameter_server"], settings)
    assert manifest["metadata"]["labels"] == {"team": "a", "kueue.x-k8s.io/queue-name": "team-a"}
    policy = manifest["spec"]["runPolicy"]
    assert policy["schedulingPolicy"] == {"minAvailable": 6, "queue": "training"}, "all six pods start together"
    assert policy["activeDeadlineSeconds"] == 60


def test_reduction_servers_need_vertex_ai():
    with pytest.raises(
        ConfigurationError, match="reduction_server is Vertex AI's, and Kubeflow has none; write all_reduce=nccl"
    ):
        make(Distribution("multi_worker_mirrored", num_workers=2, all_reduce="reduction_server"))


def test_names_are_dns_labels_with_room_for_pods():
    name = job_name("1-digits-of-a-pipeline-with-a-very-long-name-indeed-and-more", "s3://b/run/1/model")
    assert name == job_name("1-digits-of-a-pipeline-with-a-very-long-name-indeed-and-more", "s3://b/run/1/model")
    assert name.startswith("tfx-1-digits")
    assert len(f"{name}-evaluator-0") <= 63
    assert name != job_name("1-digits-of-a-pipeline-with-a-very-long-name-indeed-and-more", "s3://b/run/2/model")


def test_manifests_are_plain_yaml():
    assert yaml.safe_load(yaml.safe_dump(make(Distribution()))) == make(Distribution())
