"""Tests what is concluded from the status of a pod."""

from datetime import datetime, timezone

import pytest
from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pods


def container(name, exit_code=None):
    """Returns the status of a container that runs, or has ended."""
    state = client.V1ContainerState(running=client.V1ContainerStateRunning())
    if exit_code is not None:
        end = client.V1ContainerStateTerminated(exit_code=exit_code, finished_at=datetime.now(timezone.utc))
        state = client.V1ContainerState(terminated=end)
    return client.V1ContainerStatus(name=name, image="i", image_id="", ready=False, restart_count=0, state=state)


def pod_of(*containers, phase="Running"):
    status = client.V1PodStatus(phase=phase, container_statuses=list(containers))
    return client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=client.V1PodSpec(containers=[]), status=status)


@pytest.mark.parametrize(("exit_code", "is_deleted", "is_final"), [(1, False, True), (143, False, False), (1, True, False)])
def test_an_end_that_another_attempt_would_have_too(exit_code, is_deleted, is_final):
    pod = pod_of(container("tensorflow", exit_code))
    pod.metadata.deletion_timestamp = datetime.now(timezone.utc) if is_deleted else None
    end = pods.PodEnd.of(pod)
    assert end.how == f"ended with exit code {exit_code} (Error)"
    assert end.is_final == is_final


@pytest.mark.parametrize(("exit_code", "has_trained"), [(0, True), (1, False), (None, False)])
def test_only_the_container_that_trains_counts(exit_code, has_trained):
    running = pod_of(container("a-proxy", 1), container("tensorflow", exit_code))
    assert pods.has_trained(running) == has_trained
    assert pods.has_started(running)
    assert pods.PodEnd.of(running).how == ("ended with exit code 1 (Error)" if exit_code else "")
