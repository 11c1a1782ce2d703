"""Tests the launcher against the real controllers of TFJobs and JobSets.

The launcher has the permissions of docs/trainer-role.yaml, and no others.
Pods run shell commands in the image: what a training does is of no matter here.
"""

import re
import time
import uuid

import pytest
from pod_faults import evict
from real_cluster import wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS, KubernetesSettings
from tfx_distribute.components.launchers.kubernetes.launcher import KubernetesLauncher
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

IS_WORKER = """echo $TF_CONFIG | grep -q '"type": *"worker"'"""


def test_success(start_job, caplog):
    caplog.set_level("INFO", logger="absl")
    job = start_job("for i in 1 2 3 4; do echo line $i; sleep 1; done", workers=2)
    assert job.wait() is None
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("chief: line")]
    assert lines == [f"chief: line {number}" for number in range(1, 5)]
    assert job.job, "it stays for people to look at"


def test_replicas_resolve_each_other(start_job):
    code = (
        "import json, os, socket, time\n"
        "hosts = [host for role in json.loads(os.environ['TF_CONFIG'])['cluster'].values() for host in role]\n"
        "assert len(hosts) == 3\n"
        "deadline = time.time() + 180\n"
        "for host in hosts:\n"
        "    while True:\n"
        "        try:\n"
        "            socket.getaddrinfo(host.partition(':')[0], 1)\n"
        "            break\n"
        "        except OSError:\n"
        "            assert time.time() < deadline, host\n"
        "            time.sleep(0.2)\n"
    )
    assert start_job(f'python -c "{code}"', workers=3).wait() is None


def test_final_exit_code_names_the_pod_and_its_last_lines(start_job):
    job = start_job("echo loss is nan; exit 3")
    error = job.wait()
    assert isinstance(error, TrainingError)
    lines = str(error).splitlines()
    assert lines[0].startswith(f"{job.kind.title} {job.name} failed: ")
    assert lines[1:] == [f"pod {job.pods()[0].metadata.name} ended with exit code 3 (Error)", "  loss is nan"]
    assert job.job, "it stays for people to look at"


def test_restarts_until_it_succeeds(start_job):
    file = f"/shared/{uuid.uuid4().hex}"
    job = start_job(f"echo try >> {file}; test $(wc -l < {file}) -ge 3 || exit 138", max_restarts=2)
    assert job.wait() is None
    assert job.namespace.run("tries", ["cat", file]) == "try\n" * 3


def test_restarts_are_used_up(start_job):
    job = start_job("echo lost worker 0; sleep 1; exit 138", max_restarts=1)
    error = job.wait()
    assert isinstance(error, TrainingError)
    assert str(error).endswith("All 1 restarts (max_restarts) are used up")
    assert "  lost worker 0\n" in str(error)
    assert job.job, "it stays for people to look at"


def test_a_final_exit_code_of_a_worker_counts_whatever_its_peers_do_then(start_job):
    file = f"/shared/{uuid.uuid4().hex}"
    fail = f"{IS_WORKER} && {{ touch {file}; echo loss is nan; exit 3; }}"
    job = start_job(f"{fail}; while ! test -e {file}; do sleep 0.1; done; exit 138", workers=2)
    error = job.wait()
    assert isinstance(error, TrainingError)
    assert re.search(r"^pod \S+worker-0\S* ended with exit code 3 \(Error\)\n  loss is nan$", str(error), re.M)


def test_lack_of_memory_restarts(start_job):
    file = f"/shared/{uuid.uuid4().hex}"
    grow = "python -c 'x = bytearray(10**9)'"
    job = start_job(f"test -e {file} || {{ touch {file}; exec {grow}; }}", resources={"limits": {"memory": "64Mi"}})
    assert job.wait() is None


def test_lack_of_memory_is_named(start_job):
    grow = "exec python -c 'x = bytearray(10**9)'"
    error = start_job(grow, max_restarts=0, resources={"limits": {"memory": "64Mi"}}).wait()
    assert isinstance(error, TrainingError)
    assert "ended with exit code 137 (OOMKilled)" in str(error)


@pytest.mark.parametrize("how", ["deleted", "evicted", "lost with its node"])
def test_a_pod_that_is_taken_away_is_replaced(start_job, how):
    """A TFJob is created again; a pod that is gone at once, the operator replaces."""
    file = f"/shared/{uuid.uuid4().hex}"
    job = start_job(f"while ! test -e {file}; do sleep 0.2; done", workers=2)
    _, worker = job.wait_for_running(2)
    name, uid, task = worker.metadata.name, worker.metadata.uid, job.kind.task_of(worker)
    if how == "evicted":
        evict(job.namespace, name)
    else:
        job.namespace.delete_pod(name, grace_seconds=1 if how == "deleted" else 0)
    wait_until(lambda: any(job.kind.task_of(pod) == task and pod.metadata.uid != uid for pod in job.wait_for_running(2)))
    job.touch(file)
    assert job.wait() is None


def test_deleted_by_somebody(start_job):
    job = start_job("sleep 600")
    job.wait_for_running()
    job.delete()
    error = job.wait(60)
    assert str(error) == f"{job.kind.title} {job.name} is gone: somebody has deleted it while it was training"


def test_a_job_that_no_node_has_room_for_waits_and_says_so(start_job, caplog):
    caplog.set_level("INFO", logger="absl")
    job = start_job("exit 0", resources={"limits": {"cpu": "1000"}})
    wait_until(lambda: "FailedScheduling: 0/" in caplog.text)
    time.sleep(1)
    assert job.is_running


def test_parameter_servers_end_with_the_chief(start_job):
    distribution = Distribution("parameter_server", num_workers=2, num_parameter_servers=1)
    file = f"/shared/{uuid.uuid4().hex}"
    is_chief = 'echo $TF_CONFIG | grep -q \'"type": *"chief"\''
    job = start_job(f"{is_chief} || exec sleep 600; while ! test -e {file}; do sleep 0.2; done", distribution=distribution)
    assert [str(job.kind.task_of(pod)) for pod in job.wait_for_running(4)] == [
        "chief",
        "ps 0",
        "worker 0",
        "worker 1",
    ]
    job.touch(file)
    assert job.wait() is None
    wait_until(lambda: not [pod for pod in job.pods() if pod.status.phase == "Running"])


def test_a_step_without_a_choice_takes_what_the_cluster_has(namespace, as_step, monkeypatch):
    pod = {"spec": {"containers": [{"name": "tensorflow", "image": namespace.image}]}}

    def start():
        launcher = KubernetesLauncher(KubernetesSettings("digits", pod, pod, training="elsewhere"))
        name = f"digits-{uuid.uuid4().hex[:8]}"
        assert launcher.start(launcher.request(Training(name, "/job.json", Distribution(), {})), has_result=False)
        launcher.stop(has_time=True)
        return str(launcher._jobs)

    assert start().startswith("JobSet ")
    monkeypatch.setattr(JOB_KINDS["jobset"], "version", "v0")
    assert start().startswith("TFJob ")
    monkeypatch.setattr(JOB_KINDS["tfjob"], "plural", "tfjobs-of-another-cluster")
    with pytest.raises(ConfigurationError, match=r"does not have JobSets .*; install JobSet "):
        start()
