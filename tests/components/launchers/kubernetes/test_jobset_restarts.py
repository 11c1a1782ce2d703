"""Tests what the step does about a JobSet that has used up its restarts."""

import pytest
from kubernetes import client

from tfx_distribute.components.launchers.errors import GoneError
from tfx_distribute.components.launchers.kubernetes.jobset import JobSet
from tfx_distribute.components.launchers.kubernetes.watcher import FailedError, Limits, Watcher
from tfx_distribute.trainer_module.lifecycle.saved_step import SavedStep

pytestmark = pytest.mark.usefixtures("api")

USED_UP = {
    "type": "Failed",
    "status": "True",
    "reason": "ReachedMaxRestarts",
    "message": "too often",
}
COMPLETED = {"type": "Completed", "status": "True"}


class JobSets:
    """A client of JobSets that have ended by the time that somebody asks.

    Args:
      *ends: Condition of each JobSet that is created.
      rejects: True if a machine has rejected the last pod.
    """

    kind, name, namespace = JobSet(), "digits-1", "team"

    def __init__(self, *ends: dict, rejects: bool = False):
        self.created = 0
        self._ends, self._rejects, self._exists = ends, rejects, False

    def create(self, manifest):
        self.created += 1
        self._exists = True
        return self.get()

    def get(self):
        if not self._exists:
            raise GoneError("it is gone")
        uid = str(self.created)
        metadata = {"name": self.name, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
        status = {"conditions": [self._ends[self.created - 1]], "restarts": 3}
        return {"metadata": metadata, "spec": {"replicatedJobs": [{"name": "chief", "replicas": 1}]}, "status": status}

    def delete_if(self, condition, timeout_seconds):
        assert condition(self.get())
        self._exists = False

    def list_pods(self):
        labels = {"jobset.sigs.k8s.io/replicatedjob-name": "chief", "jobset.sigs.k8s.io/job-index": "0"}
        status = client.V1PodStatus(phase="Failed", reason="UnexpectedAdmissionError", message="Pod was rejected")
        metadata = client.V1ObjectMeta(name="digits-1-chief-0-0-abcde", uid=f"pod-{self.created}", labels=labels)
        return [client.V1Pod(metadata=metadata, status=status)] if self._rejects else []

    def list_events_of_pod(self, uid):
        return []


def follow(jobs: JobSets, max_restarts: int = 3, read_step=SavedStep) -> None:
    watcher = Watcher(jobs, {"metadata": {"name": jobs.name, "labels": {}}}, Limits(max_restarts, read_step=read_step))
    assert watcher.start(has_result=False)
    watcher.follow()


def test_it_is_created_again_if_training_has_advanced():
    jobs, steps = JobSets(USED_UP, USED_UP, COMPLETED), iter([0, 100, 200])
    follow(jobs, read_step=lambda: SavedStep(next(steps)))
    assert jobs.created == 3


@pytest.mark.parametrize("max_restarts", [3, 0])
def test_without_progress_it_ends_the_step(max_restarts):
    jobs = JobSets(USED_UP)
    with pytest.raises(FailedError, match=rf"All {max_restarts} restarts \(max_restarts\) are used up"):
        follow(jobs, max_restarts, read_step=lambda: SavedStep(100))
    assert jobs.created == 1


def test_rejected_pods_use_up_no_restart(caplog):
    jobs = JobSets(USED_UP, USED_UP, COMPLETED, rejects=True)
    follow(jobs, max_restarts=1)
    assert jobs.created == 3
    assert "failed (UnexpectedAdmissionError: Pod was rejected); this uses up no restart" in caplog.text
