"""Runs the digits on a real Kubeflow Pipelines, to check what its stand-in assumes.

`KFP_HOST` is the address of its API. Its namespace, `KFP_NAMESPACE`, must have the
claim `training` and the role of docs/kind.md, and its pods must reach this machine.
"""

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import webhook as webhooks
import yaml
from digits_on_cluster import DIGITS
from kubernetes.client.exceptions import ApiException
from real_cluster import Namespace, wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

STEPS = [
    "DigitsExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Sharder", "Trainer", "Evaluator",
    "Pusher", "notify",
]  # fmt: skip
NAME = "tfx-distribute-test"  # of the Secret with the address
WORKERS = ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")


@pytest.fixture(scope="module")
def host() -> str:
    if not os.environ.get("KFP_HOST"):
        pytest.skip("KFP_HOST names no Kubeflow Pipelines")
    return os.environ["KFP_HOST"]


@pytest.fixture(scope="module")
def kubeflow(admin, image, host) -> Namespace:
    return Namespace(admin, os.environ.get("KFP_NAMESPACE", "kubeflow"), image, Path())


@pytest.fixture(scope="module")
def webhook(host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((urlsplit(host).hostname, 1))
        own_address = route.getsockname()[0]
    with webhooks.receiving(own_address) as running:
        yield running


@pytest.fixture(scope="module")
def pipeline(kubeflow, webhook, tmp_path_factory) -> Path:
    """Returns the digits' file, with notifications whose address is in a Secret."""
    document = yaml.safe_load((DIGITS / "kind.yaml").read_text())
    document["module"] = str(DIGITS / document["module"])
    document["notify"] = {"urls": "NOTIFY_URLS", "when": ["succeeded", "failed"]}
    secrets = [{"name": NAME, "env": {"NOTIFY_URLS": "urls"}}]
    document["targets"]["kubeflow"] |= {"image": kubeflow.image, "namespace": kubeflow.name, "secrets": secrets}
    file = tmp_path_factory.mktemp("digits") / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    kubeflow.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "stringData": {"urls": webhook.address}}
    )
    yield file
    with suppress(ApiException):
        kubeflow.core.delete_namespaced_secret(NAME, kubeflow.name)


def command(host: str, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tfx_distribute.pipelines", *words, "--target", "kubeflow", "--host", host],
        capture_output=True,
        text=True,
        timeout=1500,
        env={**os.environ, "PYTHONPATH": str(DIGITS)},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def show(host: str, run: str) -> dict:
    return json.loads(command(host, "runs", "show", run, "--output", "json"))


def test_a_run_is_followed_and_told(host, pipeline, webhook):
    printed = command(host, "submit", str(pipeline), *WORKERS, "--wait")
    run = printed.split()[1].rpartition("/")[2]
    assert printed.splitlines()[-1].split() == ["ended", "succeeded"]
    document = show(host, run)
    assert [(task["name"], task["state"]) for task in document["tasks"]] == [(step, "succeeded") for step in STEPS]
    assert run in command(host, "runs", "list")
    (message,) = webhook.messages
    assert message["title"] == "digits: succeeded"
    assert f"run: {run}\n" in message["message"]
    assert "(>= 0.95 met)" in message["message"]


def test_a_canceled_run_leaves_no_job(host, kubeflow, pipeline):
    def jobs() -> list[str]:
        return [job["metadata"]["name"] for kind in JOB_KINDS.values() for job in kubeflow.jobs(kind)]

    before = set(jobs())
    run = command(host, "submit", str(pipeline), *WORKERS, "-p", "epochs=5000").split()[1].rpartition("/")[2]
    (job,) = wait_until(lambda: set(jobs()) - before, 600)
    command(host, "runs", "cancel", run)
    wait_until(lambda: job not in jobs(), 120)


def test_a_schedule_starts_runs(host, pipeline):
    def find_runs() -> list[str]:
        lines = command(host, "runs", "list").splitlines()[1:]
        return [line.split()[0] for line in lines]

    before = set(find_runs())
    words = ("submit", str(pipeline), "-p", "epochs=1", "--cron", "* * * * *", "--no-catchup")
    schedule = command(host, *words).split()[1]
    assert schedule in command(host, "schedules", "list")
    started = wait_until(lambda: set(find_runs()) - before, 240)
    command(host, "schedules", "pause", schedule)
    command(host, "schedules", "delete", schedule, code=2)  # its run would be deleted, too
    for run in started:
        command(host, "runs", "cancel", run)
        wait_until(lambda run=run: show(host, run)["state"] == "failed", 120)
    command(host, "schedules", "delete", schedule)
    assert schedule not in command(host, "schedules", "list")
