"""Tests what is concluded from the status of a pod."""

from datetime import datetime, timedelta, timezone

import pytest
from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pods

DELETED = datetime(2026, 1, 1, 0, 1, 0, tzinfo=timezone.utc)  # when the request came
GRACE = 30


def container(name, exit_code=None, seconds=0):
    """Returns the status of a container that runs, or ended after `DELETED`."""
    state = client.V1ContainerState(running=client.V1ContainerStateRunning())
    if exit_code is not None:
        end = client.V1ContainerStateTerminated(exit_code=exit_code, finished_at=DELETED + timedelta(seconds=seconds))
        state = client.V1ContainerState(terminated=end)
    return client.V1ContainerStatus(name=name, image="i", image_id="", ready=False, restart_count=0, state=state)


def pod(exit_code=None, seconds=0, deleted=True):
    metadata = client.V1ObjectMeta(name="p")
    if deleted:
        metadata.deletion_timestamp, metadata.deletion_grace_period_seconds = DELETED + timedelta(seconds=GRACE), GRACE
    status = client.V1PodStatus(phase="Running")
    if exit_code is not None:
        status.container_statuses = [container("tensorflow", exit_code, seconds)]
    return client.V1Pod(metadata=metadata, spec=client.V1PodSpec(containers=[], node_name="node-3"), status=status)


@pytest.mark.parametrize(
    ("exit_code", "seconds", "deleted", "final"),
    [(1, 0, False, True), (143, 0, False, False), (1, -1, True, True), (1, 0, True, False), (1, 20, True, False)],
)
def test_an_end_that_another_attempt_would_have_too(exit_code, seconds, deleted, final):
    """Not that of a process which fails because its pod is deleted."""
    end = pods.PodEnd.of(pod(exit_code, seconds, deleted))
    assert end.how == f"ended with exit code {exit_code} (Error)"
    assert end.is_final == final


def pod_of(*containers, phase="Running"):
    status = client.V1PodStatus(phase=phase, container_statuses=list(containers))
    return client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=client.V1PodSpec(containers=[]), status=status)


@pytest.mark.parametrize(("exit_code", "has_trained"), [(0, True), (1, False), (None, False)])
def test_only_the_container_that_trains_counts(exit_code, has_trained):
    running = pod_of(container("a-proxy", 1), container("tensorflow", exit_code))
    assert pods.has_trained(running) == has_trained
    assert pods.has_started(running)
    assert pods.PodEnd.of(running).how == ("ended with exit code 1 (Error)" if exit_code else "")
