"""Defines fixtures of tests on a real Kubernetes cluster, which `KUBECONFIG` names.

The cluster has the Training Operator, JobSet, Kueue, and the image `IMAGE`, with this
package and the digits' module. `STORAGE_CLASS` is a storage class with ReadWriteMany;
on a cluster with one node there need not be one.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import real_cluster
from cluster_jobs import ClusterJob, file_pod, shell_pod
from digits_on_cluster import Installation, install
from kubernetes import client
from real_cluster import Document

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS, JobKind
from tfx_distribute.components.launchers.kubernetes.launcher import KubernetesLauncher


@pytest.fixture(scope="session")
def admin() -> client.ApiClient:
    """Returns a client of the cluster; skips tests where none is named."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG names no Kubernetes cluster")
    return real_cluster.connect()


# Of one test: pytest would put tests with the same value of a wider scope together.
@pytest.fixture(params=list(JOB_KINDS))
def kind(request) -> JobKind:
    return JOB_KINDS[request.param]


@pytest.fixture(scope="session")
def image() -> str:
    return os.environ.get("IMAGE", "registry.example.com/team/digits:1")


@pytest.fixture(scope="module")
def namespace(admin, image, request, tmp_path_factory) -> Iterator[real_cluster.Namespace]:
    """Returns a namespace with a role and a volume, for the tests of a module.

    A module's `NAMESPACE_LABELS` are its labels.
    """
    folder = tmp_path_factory.mktemp("namespace")
    labels = getattr(request.module, "NAMESPACE_LABELS", {})
    with real_cluster.namespace(admin, image, folder, os.environ.get("STORAGE_CLASS", ""), labels) as created:
        yield created


@pytest.fixture(scope="module")
def installation(namespace, tmp_path_factory) -> Iterator[Installation]:
    """Returns Kubeflow Pipelines, and the digits, in the namespace of a module."""
    with install(namespace, tmp_path_factory.mktemp("digits")) as installed:
        yield installed


@pytest.fixture
def as_step(namespace, monkeypatch) -> None:
    """Gives the launcher the permissions of docs/trainer-role.yaml.

    It looks more often than in use.
    """
    monkeypatch.setattr(KubernetesLauncher, "poll_seconds", 0.3)
    monkeypatch.setattr(timeouts, "NEWS_SECONDS", 1.0)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(namespace.kubeconfig))
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.fixture
def start_job(namespace, kind, as_step) -> Iterator[Callable[..., ClusterJob]]:
    """Returns a function that starts a job of each kind with a shell command."""
    started: list[ClusterJob] = []

    def start(
        command: str, of: JobKind = kind, resources: Document | None = None, template: Document | None = None, **more: Any
    ) -> ClusterJob:
        template = template or shell_pod(namespace.image, resources)
        started.append(ClusterJob(namespace, of, command, template, **more))
        return started[-1]

    yield start
    for job in started:
        if job.job:
            job.delete()
        job.wait(60)


@pytest.fixture
def start(namespace, start_job) -> Callable[..., ClusterJob]:
    """Returns a function that starts a job whose pods are those of a pipeline file."""

    def make(
        command: str | Sequence[str] | None = "exit 0",
        workers: int = 1,
        start_seconds: float = 0.0,
        pod: Document | None = None,
        **settings: Any,
    ) -> ClusterJob:
        template = file_pod(pod or {}, **{"image": namespace.image, **settings})
        job: ClusterJob = start_job(command, template=template, workers=workers, max_restarts=1, start_seconds=start_seconds)
        return job

    return make


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the modules first that take longest.

    Those are the ones with whole trainings, and then those with the most tests.
    """
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: ("installation" not in getattr(item, "fixturenames", ()), -sizes[item.path]))
