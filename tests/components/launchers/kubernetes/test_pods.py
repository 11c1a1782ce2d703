"""Tests what is concluded from the status of a pod."""

import pytest
from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import pods


def container(name, exit_code=None):
    """Returns the status of a container that runs, or has ended."""
    state = client.V1ContainerState(running=client.V1ContainerStateRunning())
    if exit_code is not None:
        end = client.V1ContainerStateTerminated(exit_code=exit_code)
        state = client.V1ContainerState(terminated=end)
    return client.V1ContainerStatus(name=name, image="i", image_id="", ready=False, restart_count=0, state=state)


def pod_of(*containers, phase="Running"):
    status = client.V1PodStatus(phase=phase, container_statuses=list(containers))
    return client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=client.V1PodSpec(containers=[]), status=status)


@pytest.mark.parametrize(("exit_code", "final"), [(1, True), (143, False)])
def test_an_end_that_another_attempt_would_have_too(exit_code, final):
    end = pods.PodEnd.of(pod_of(container("tensorflow", exit_code)))
    assert end.how == f"ended with exit code {exit_code} (Error)"
    assert end.is_final == final


def test_the_end_of_another_container_is_none_of_the_training():
    proxy = container("a-proxy", exit_code=1)
    assert not pods.PodEnd.of(pod_of(proxy, container("tensorflow"))).how
    end = pods.PodEnd.of(pod_of(proxy, container("tensorflow", exit_code=143)))
    assert end.how == "ended with exit code 143 (Error)"
    end = pods.PodEnd.of(pod_of(proxy, container("tensorflow", exit_code=0), phase="Failed"))
    assert (end.how, end.is_final) == ("failed: its container a-proxy ended with exit code 1 (Error)", False)


def test_an_init_container_that_fails():
    failed = pod_of(phase="Failed")
    failed.status.init_container_statuses = [container("first", exit_code=0), container("login", exit_code=7)]
    end = pods.PodEnd.of(failed)
    assert (end.how, end.container) == ("failed: its init container login ended with exit code 7 (Error)", "login")
    assert not end.is_final


@pytest.mark.parametrize(("exit_code", "has_trained"), [(0, True), (1, False), (None, False)])
def test_a_pod_whose_training_has_ended_while_a_sidecar_runs(exit_code, has_trained):
    running = pod_of(container("a-proxy"), container("tensorflow", exit_code))
    assert pods.has_trained(running) == has_trained
    assert pods.has_started(running)
