"""Defines fixtures of tests on a real Kubernetes cluster, which `KUBECONFIG` names.

The cluster has the Training Operator, JobSet, Kueue, and the image `IMAGE`, with this
package and the digits' module. `STORAGE_CLASS` is a storage class with ReadWriteMany;
on a cluster with one node there need not be one.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import file_jobs
import pytest
import real_cluster
from cluster_jobs import ClusterJob
from digits_on_cluster import Installation, install
from kubernetes import client
from launching import Launch

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

    def start(command: str, of: JobKind = kind, **arguments: Any) -> ClusterJob:
        started.append(ClusterJob(namespace, of, command, **arguments))
        return started[-1]

    yield start
    for job in started:
        if job.job:
            job.delete()
        job.wait(60)


@pytest.fixture
def start(namespace, kind, as_step) -> Iterator[Callable[..., Launch]]:
    """Returns a function that starts a job whose pods are those of a pipeline file.

    It takes the arguments of `file_jobs.start` after the first two.
    """
    started: list[Launch] = []

    def make(*arguments: Any, **settings: Any) -> Launch:
        started.append(file_jobs.start(namespace, kind, *arguments, **settings))
        return started[-1]

    yield make
    left = [job["metadata"]["name"] for job in namespace.jobs(kind)]
    for launch in started:
        if launch.name in left:
            namespace.delete_job(kind, launch.name)
        launch.wait(60)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the modules first that take longest.

    Those are the ones with whole trainings, and then those with the most tests.
    """
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: ("installation" not in getattr(item, "fixturenames", ()), -sizes[item.path]))
