"""Tests what the settings of Kubeflow refuse before Kubernetes does."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tfx_distribute.pipelines.spec import yaml_text
from tfx_distribute.pipelines.spec.loader import explain
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings

TARGET = {"image": "registry.example.com/team/digits:1", "pipeline_root": "gs://bucket/root"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": "registry.example.com/Team/digits:1"}, "image: 'registry.example.com/Team/digits:1' is not allowed"),
        ({"service_account": "Trainer"}, "service_account: 'Trainer' is not allowed: string should match pattern"),
        ({"queue": "Team A"}, "queue: 'Team A' is not allowed"),
        ({"labels": {"cost center": "1"}}, "labels.cost center: 'cost center' is not allowed"),
        ({"labels": {"team": "a b"}}, "labels.team: 'a b' is not allowed"),
        ({"annotations": {"/a": "b"}}, "annotations./a: '/a' is not allowed"),
        ({"volumes": [{"claim": "data", "mount_path": "/data:ro"}]}, "volumes.0.mount_path: '/data:ro' is not allowed"),
        ({"secrets": [{"name": "s3", "env": {"1A": "a"}}]}, "secrets.0.env.1A: '1A' is not allowed"),
        ({"secrets": [{"name": "s3", "env": {"A": "a b"}}]}, "secrets.0.env.A: 'a b' is not allowed"),
    ],
)
def test_what_kubernetes_would_refuse_later(changes: dict[str, Any], message: str):
    document = TARGET | changes
    with pytest.raises(ValidationError) as raised:
        KubeflowSettings(**document)
    _, lines = yaml_text.parse(yaml.safe_dump(document))
    ((_, text),) = explain(raised.value, KubeflowSettings, lines)
    assert message in text


@pytest.mark.parametrize(
    "changes",
    [
        {"image": f"localhost:5000/team/digits__a@sha256:{'0' * 64}"},
        {"image": "123.dkr.ecr.eu-west-1.amazonaws.com/digits:V1.0_a"},
        {"labels": {"kueue.x-k8s.io/priority-class": "High_1", "Team": ""}},
        {"annotations": {"karpenter.sh/do-not-disrupt": "true", "note": "any words, of any kind"}},
        {"secrets": [{"name": "s3.team", "env": {"AWS_SECRET": "key.json"}}], "metrics_port": 2223},
    ],
)
def test_what_kubernetes_takes(changes: dict[str, Any]):
    KubeflowSettings(**(TARGET | changes))
