"""Tests how trials are launched on other machines."""

import os
import time

import pytest
from tfx.types import standard_artifacts

from tfx_distribute.components.launchers import settings as settings_lib
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.components.trainer import remote_training
from tfx_distribute.components.tuner.trial_launcher import trial_launcher
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    Outputs,
    TrainingJob,
    TrainingOptions,
    TrainingResult,
    UserModule,
)
from tfx_distribute.trainer_module.lifecycle import atomic_files, lease

JOB = TrainingJob(UserModule("model.build_model"), None, Distribution(), TrainingOptions(epochs=1), Outputs("", "", ""))


@pytest.fixture
def launch(tmp_path):
    """Returns a function that trains the job of a trial."""
    pod = {"spec": {"containers": [{"name": "tensorflow"}]}}
    settings = KubernetesSettings("digits", pod, pod, training="pods", training_dir=str(tmp_path / "shared"))
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "examples")
    os.makedirs(examples.uri)
    properties = {"launcher": settings_lib.to_json(settings), "build_model": "model.build_model"}
    with trial_launcher({"examples": [examples]}, properties, Distribution(), str(tmp_path / "best"), 2) as launcher:
        yield launcher.launch


def test_each_trial_has_a_lease_that_is_renewed_while_it_is_followed(launch, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    leases = []

    def count_renewals(path: str, seconds: float) -> int:
        seen, deadline = set(), time.monotonic() + seconds
        while time.monotonic() < deadline:
            seen.add(atomic_files.read(path))
            time.sleep(0.01)
        return len(seen)

    def train(settings, name, address, environment, job, has_result):
        leases.append(environment[lease.LEASE_VARIABLE])
        assert os.path.dirname(leases[-1]) == os.path.dirname(address)
        assert count_renewals(leases[-1], 1.0) > 2
        if len(leases) == 1:
            raise TrainingError("the job cannot be followed, and could not be deleted")
        assert count_renewals(leases[0], 0.5) == 1, "the lease of the trial before is not renewed any more"
        atomic_files.write(job.outputs.result_file, TrainingResult(1, 32, 10, 1.0, {}).to_json())

    monkeypatch.setattr(remote_training, "_launch", train)
    with pytest.raises(TrainingError):
        launch(JOB, "0")
    assert launch(JOB, "1").train_steps == 10
    assert len(set(leases)) == 2
