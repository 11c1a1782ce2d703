"""The fake of the Kubernetes API for the launcher."""

import pytest
from kubernetes_api import ApiServer
from tfjobs import ALLOWED, NAMESPACE

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.kubernetes import launcher


@pytest.fixture
def api(tmp_path, monkeypatch):
    for module, name, value in (
        (launcher.KubernetesLauncher, "poll_seconds", 0.1),
        (timeouts, "NEWS_SECONDS", 0.1),
        (timeouts, "RETRY_SECONDS", 0.1),
        (timeouts, "ANSWER_SECONDS", 8.0),
        (timeouts, "STOP_SECONDS", 2.0),
    ):
        monkeypatch.setattr(module, name, value)
    # Allows only what docs/trainer-role.yaml has.
    with ApiServer(allowed=ALLOWED) as running:
        running.write_kubeconfig(tmp_path / "kubeconfig", namespace=NAMESPACE)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        yield running
