"""Tests the TFJob launcher against the real Training Operator.

The launcher has the permissions that `tfx-distribute manifests` prints, and no others.
Pods run shell commands in the image: what a training does is of no matter here.
"""

import time
import uuid

import pytest
from launching import Launch
from real_cluster import CLAIM, USER, wait_until

from tfx_distribute.components.launchers.tfjob import launcher as tfjob_launcher
from tfx_distribute.components.launchers.tfjob.manifest import TFJobSettings, make_manifest
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


class Job(Launch):
    """A TFJob whose pods run a shell command, and its launcher."""

    def __init__(self, namespace, command, workers=1, max_restarts=3, **container):
        self.namespace = namespace
        distribution = Distribution("multi_worker_mirrored", num_workers=workers) if workers > 1 else Distribution()
        template = pod_template(namespace.image, **container)
        settings = TFJobSettings("digits", template, template)
        manifest = make_manifest(f"digits-{uuid.uuid4().hex[:8]}", "/job.json", distribution, {}, settings)
        for replica in manifest["spec"]["tfReplicaSpecs"].values():
            replica["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", command]
        super().__init__(manifest, max_restarts)

    @property
    def tfjob(self):
        return next((job for job in self.namespace.tfjobs() if job["metadata"]["name"] == self.name), None)

    def pods(self):
        return self.namespace.pods(**{"training.kubeflow.org/job-name": self.name})

    def wait_for_running(self, count=1):
        def running():
            pods = [pod for pod in self.pods() if pod.status.phase == "Running"]
            return sorted(pods, key=lambda pod: pod.metadata.name) if len(pods) == count else None

        return wait_until(running)


def pod_template(image, **container):
    return {
        "metadata": {"labels": {}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": USER, "fsGroup": USER},
            "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}}],
            "containers": [
                {
                    "name": "tensorflow",
                    "image": image,
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
                    **container,
                }
            ],
        },
    }


@pytest.fixture
def start(namespace, monkeypatch):
    """Returns a function that starts a TFJob with a shell command."""
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(namespace.kubeconfig))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(tfjob_launcher, "POLL_SECONDS", 0.3)
    started = []

    def make(command, **arguments):
        started.append(Job(namespace, command, **arguments))
        return started[-1]

    yield make
    for job in started:
        if job.tfjob:
            namespace.custom.delete_namespaced_custom_object("kubeflow.org", "v1", namespace.name, "tfjobs", job.name)
        job.wait(60)


def test_success(start, caplog):
    caplog.set_level("INFO", logger="absl")
    job = start("for i in 1 2 3 4; do echo line $i; sleep 1; done", workers=2)
    assert job.wait() is None
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("chief: line")]
    assert lines == [f"chief: line {number}" for number in range(1, 5)]
    assert job.tfjob, "it stays for people to look at"


def test_replicas_resolve_each_other(start):
    code = (
        "import json, os, socket, time\n"
        "hosts = [host for role in json.loads(os.environ['TF_CONFIG'])['cluster'].values() for host in role]\n"
        "assert len(hosts) == 3\n"
        "deadline = time.time() + 60\n"
        "for host in hosts:\n"
        "    while True:\n"
        "        try:\n"
        "            socket.getaddrinfo(host.partition(':')[0], 1)\n"
        "            break\n"
        "        except OSError:\n"
        "            assert time.time() < deadline, host\n"
        "            time.sleep(0.2)\n"
    )
    assert start(f'python -c "{code}"', workers=3).wait() is None


def test_final_exit_code_names_the_pod_and_its_last_lines(start):
    job = start("echo loss is nan; exit 3")
    error = job.wait()
    assert isinstance(error, TrainingError)
    lines = str(error).splitlines()
    assert lines[0].startswith(f"TFJob {job.name} failed: ")
    assert lines[1:] == [f"pod {job.name}-chief-0 ended with exit code 3 (Error)", "  loss is nan"]
    assert job.tfjob, "it stays for people to look at"


def test_restarts_until_it_succeeds(start):
    file = f"/shared/{uuid.uuid4().hex}"
    job = start(f"echo try >> {file}; test $(wc -l < {file}) -ge 3 || exit 138", max_restarts=2)
    assert job.wait() is None
    assert job.namespace.run("tries", ["cat", file]) == "try\n" * 3


def test_restarts_are_used_up(start):
    job = start("echo lost worker 0; sleep 1; exit 138", max_restarts=1)
    error = job.wait()
    assert isinstance(error, TrainingError)
    assert str(error).endswith("All 1 restarts (max_restarts) are used up")
    assert "  lost worker 0\n" in str(error)
    wait_until(lambda: not job.tfjob)


def test_lack_of_memory_restarts(start):
    file = f"/shared/{uuid.uuid4().hex}"
    grow = "python -c 'x = bytearray(10**9)'"
    job = start(f"test -e {file} || {{ touch {file}; exec {grow}; }}", resources={"limits": {"memory": "64Mi"}})
    assert job.wait() is None


def test_lack_of_memory_is_named(start):
    grow = "exec python -c 'x = bytearray(10**9)'"
    error = start(grow, max_restarts=0, resources={"limits": {"memory": "64Mi"}}).wait()
    assert isinstance(error, TrainingError)
    assert "ended with exit code 137 (OOMKilled)" in str(error)


@pytest.mark.parametrize("how", ["deleted", "evicted", "lost with its node"])
def test_a_pod_that_is_taken_away_is_replaced(start, how):
    """The operator gives up the job, and the launcher creates it again.

    A pod that disappears at once, as with its node, the operator itself may replace.
    """
    file = f"/shared/{uuid.uuid4().hex}"
    job = start(f"while ! test -e {file}; do sleep 0.2; done", workers=2)
    _, worker = job.wait_for_running(2)
    name, uid = worker.metadata.name, worker.metadata.uid
    if how == "evicted":
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        job.namespace.core.create_namespaced_pod_eviction(name, job.namespace.name, eviction)
    else:
        job.namespace.delete_pod(name, grace_seconds=1 if how == "deleted" else 0)
    wait_until(lambda: any(pod.metadata.name == name and pod.metadata.uid != uid for pod in job.wait_for_running(2)))
    job.namespace.run(f"finish-{uuid.uuid4().hex[:8]}", ["touch", file])
    assert job.wait() is None


def test_deleted_by_somebody(start):
    job = start("sleep 600")
    job.wait_for_running()
    job.namespace.custom.delete_namespaced_custom_object("kubeflow.org", "v1", job.namespace.name, "tfjobs", job.name)
    error = job.wait(60)
    assert str(error) == f"TFJob {job.name} is gone: somebody has deleted it while it was training"


def test_pods_after_a_suspension_do_not_count_as_restarts(start, caplog):
    caplog.set_level("INFO", logger="absl")
    file = f"/shared/{uuid.uuid4().hex}"
    job = start(f"echo starts; while ! test -e {file}; do sleep 0.2; done", max_restarts=0)

    def suspend(value):
        body = {"spec": {"runPolicy": {"suspend": value}}}
        job.namespace.custom.patch_namespaced_custom_object(
            "kubeflow.org", "v1", job.namespace.name, "tfjobs", job.name, body
        )

    wait_until(lambda: caplog.text.count("chief: starts") == 1)
    suspend(True)
    wait_until(lambda: "Suspended" in caplog.text and not job.pods())
    suspend(False)
    wait_until(lambda: caplog.text.count("chief: starts") == 2)
    job.namespace.run("finish-suspended", ["touch", file])
    assert job.wait() is None


def test_a_job_that_no_node_has_room_for_waits_and_says_so(start, caplog):
    caplog.set_level("INFO", logger="absl")
    job = start("exit 0", resources={"limits": {"cpu": "1000"}})
    wait_until(lambda: "waits for a node (Unschedulable: " in caplog.text)
    time.sleep(1)
    assert job.is_running
