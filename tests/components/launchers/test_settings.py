"""Tests the settings of launchers: their JSON document, and where training runs."""

from dataclasses import replace

import pytest

from tfx_distribute.components.launchers import registry
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.components.launchers.vertex.launcher import VertexTrainingSettings
from tfx_distribute.trainer_module.job.training_job import Distribution

WORKER_POOLS = VertexTrainingSettings(
    name="digits",
    project="example-project",
    location="europe-west4",
    image="image",
    worker={"machine_type": "g2-standard-24", "reservation_affinity": {"values": ["l4"]}},
    parameter_server={"machine_type": "n2-highmem-8"},
    scheduling={"strategy": "SPOT", "restart_job_on_worker_restart": True},
    labels={"team": "a"},
)
POD = {"spec": {"containers": [{"name": "tensorflow"}]}}
PODS = KubernetesSettings("digits", POD, POD)


@pytest.mark.parametrize("settings", [WORKER_POOLS, PODS])
def test_settings_survive_json(settings):
    assert registry.from_json(registry.to_json(settings)) == settings


@pytest.mark.parametrize("settings", [WORKER_POOLS, PODS])
@pytest.mark.parametrize(
    ("training", "distribution", "remotely"),
    [
        ("auto", Distribution("mirrored", accelerator_count=8), False),
        ("auto", Distribution("multi_worker_mirrored", num_workers=1), False),
        ("auto", Distribution("multi_worker_mirrored", num_workers=2), True),
        ("auto", Distribution("parameter_server"), True),
        ("always", Distribution(), True),
        ("step", Distribution("multi_worker_mirrored", num_workers=2), False),
    ],
)
def test_when_training_runs_remotely(settings, training, distribution, remotely):
    settings = settings.elsewhere() if training == "always" else replace(settings, training=training)
    assert settings.runs_remotely(distribution) is remotely
