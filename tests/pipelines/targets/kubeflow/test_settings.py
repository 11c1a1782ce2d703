"""Tests what the settings of Kubeflow refuse before Kubernetes does."""

from typing import Any

import pytest
from pydantic import ValidationError

from tfx_distribute.pipelines.spec.loader import explain
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings

TARGET = {"image": "registry.example.com/team/digits:1", "pipeline_root": "gs://bucket/root"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": "registry.example.com/Team/digits:1"}, "whose name has no capitals and spaces"),
        ({"image": "digits: 1"}, "whose name has no capitals and spaces"),
        ({"service_account": "Trainer"}, "service_account: 'Trainer' is not allowed: write lower-case letters, digits"),
        ({"service_account": "trainer\n"}, "write lower-case letters"),
        ({"namespace": "team.a"}, "write at most 63 lower-case letters"),
        ({"queue": "Team A"}, "queue: 'Team A' is not allowed: write at most 63 lower-case letters"),
        ({"image_pull_secrets": ["registry_1"]}, "image_pull_secrets.0: 'registry_1' is not allowed"),
        ({"gang_scheduling": {"priority_class": "High"}}, "gang_scheduling.priority_class: 'High' is not allowed"),
        ({"labels": {"cost center": "1"}}, "labels.cost center: 'cost center' is not allowed: write a key such as team"),
        ({"labels": {"a" * 64: "1"}}, "write a key such as team"),
        ({"labels": {"team": "a b"}}, "labels.team: 'a b' is not allowed: write at most 63 letters"),
        ({"labels": {"training.kubeflow.org/job-name": "a"}}, "the controller of the training sets it; leave it out"),
        ({"annotations": {"/a": "b"}}, "annotations./a: '/a' is not allowed: write a key"),
        ({"volumes": [{"claim": "Data", "mount_path": "/data"}]}, "volumes.0.claim: 'Data' is not allowed"),
        ({"volumes": [{"claim": "data", "mount_path": "/data:ro"}]}, "write a path such as /data, without ':'"),
        ({"secrets": [{"name": "S3", "env": {"A": "a"}}]}, "secrets.0.name: 'S3' is not allowed"),
        ({"secrets": [{"name": "s3", "env": {"1A": "a"}}]}, "secrets.0.env.1A: '1A' is not allowed: write letters"),
        ({"secrets": [{"name": "s3", "env": {"A": "a b"}}]}, "secrets.0.env.A: 'a b' is not allowed: write letters"),
        ({"metrics_port": 2222}, "metrics_port: 2222 is not allowed: the processes of a training listen there"),
    ],
)
def test_what_kubernetes_would_refuse_later(changes: dict[str, Any], message: str):
    document = TARGET | changes
    with pytest.raises(ValidationError) as raised:
        KubeflowSettings(**document)
    ((_, text),) = explain(raised.value, KubeflowSettings, document)
    assert message in text


@pytest.mark.parametrize(
    "changes",
    [
        {"image": f"localhost:5000/team/digits__a@sha256:{'0' * 64}"},
        {"image": "123.dkr.ecr.eu-west-1.amazonaws.com/digits:V1.0_a"},
        {"image": "digits"},
        {"labels": {"kueue.x-k8s.io/priority-class": "High_1", "Team": ""}},
        {"annotations": {"karpenter.sh/do-not-disrupt": "true", "note": "any words, of any kind"}},
        {"secrets": [{"name": "s3.team", "env": {"AWS_SECRET": "key.json"}}], "metrics_port": 2223},
    ],
)
def test_what_kubernetes_takes(changes: dict[str, Any]):
    KubeflowSettings(**(TARGET | changes))
