"""The fake of the Kubernetes API for the launcher."""

import pytest
from kubernetes_api import ApiServer
from tfjobs import NAME, NAMESPACE, NEEDED

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.kubernetes import client as kubernetes_client
from tfx_distribute.components.launchers.kubernetes import (
    connection,
    missing_pods,
    pod_log,
    pod_starts,
    refusals,
    unseen_ends,
    watcher,
)
from tfx_distribute.components.launchers.kubernetes.tfjob import TFJob


@pytest.fixture
def api(tmp_path, monkeypatch):
    for module, name, value in (
        (watcher, "POLL_SECONDS", 0.1),
        (watcher, "FINAL_EXIT_SECONDS", 0.5),
        (retry, "RETRY_SECONDS", 0.1),
        (retry, "TIMEOUT_SECONDS", 8.0),
        (pod_starts, "START_SECONDS", 0.5),
        (missing_pods, "CONTROLLER_SECONDS", 3.0),
        (pod_starts, "EVENTS_SECONDS", 0.1),
        (kubernetes_client, "WEBHOOK_SECONDS", 0.5),
        (unseen_ends, "UNSEEN_SECONDS", 0.5),
        (watcher, "DELETE_SECONDS", 2.0),
        (refusals, "FINAL_SECONDS", 1.0),
        (pod_log, "RETRY_SECONDS", 0.1),
    ):
        monkeypatch.setattr(module, name, value)
    # Allows only what `tfx-distribute manifests` prints.
    with ApiServer(allowed=NEEDED) as running:
        running.write_kubeconfig(tmp_path / "kubeconfig", namespace=NAMESPACE)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        yield running


@pytest.fixture
def jobs(api):
    """Returns a client for the TFJob of a test without a launcher."""
    connection.load_config()
    return kubernetes_client.JobClient(TFJob(), NAME, NAMESPACE)
