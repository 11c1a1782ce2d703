"""Tests that the fake of Vertex AI runs jobs and refuses what is documented."""

import pytest
from google.api_core import exceptions
from google.cloud.aiplatform.utils import JobClientWithOverride
from running import wait_until
from vertex_api import VertexApi
from vertex_pools import Options

from tfx_distribute.components.launchers.vertex import service


@pytest.fixture
def api(tmp_path):
    with VertexApi(tmp_path, Options(worker_restarts=1, job_restarts=1, grace=0.5)) as server, server.connected():
        yield server


def create(api: VertexApi, *scripts: str, machine: str = "n1-standard-4", **changes: object) -> str:
    def pool(script: str) -> dict:
        container = {"image_uri": "image", "command": ["python", "-c", script]}
        return {"machine_spec": {"machine_type": machine}, "replica_count": 1, "container_spec": container}

    job = {"display_name": "job", "job_spec": {"worker_pool_specs": [*map(pool, scripts)]}, **changes}
    client, parent = service.connect(JobClientWithOverride, api.project, api.location)
    return str(client.create_custom_job(parent=parent, custom_job=job).name)


def test_replicas_learn_their_roles_and_the_chief_ends_the_job(api):
    show = "import os; print(os.environ['TF_CONFIG'], flush=True)"
    name = create(api, f"{show}; import time; time.sleep(1)", f"{show}; import time; time.sleep(60)")
    wait_until(lambda: api.state(name) == "SUCCEEDED")
    assert '"task": {"type": "worker", "index": 0}' in api.printed(name, "workerpool1-0")


def test_a_failed_replica_is_restarted_and_then_the_job(api):
    name = create(api, "print('tried', flush=True); raise SystemExit(3)")
    wait_until(lambda: api.state(name) == "FAILED")
    assert api.printed(name).count("tried") == 4
    wait_until(lambda: "non-zero status of 3. Error: \ntried" in api.get(name).error.message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"display_name": ""}, "display_name is required"),
        ({"labels": {"Team": "a"}}, "labels: at most 64"),
        ({"machine": ""}, "machine_type is required"),
        ({"encryption_spec": {"kms_key_name": "projects/p/locations/asia-east1/k"}}, "is not a key in us-central1"),
    ],
)
def test_what_is_refused(api, changes, message):
    with pytest.raises(exceptions.InvalidArgument, match=message):
        create(api, "pass", **changes)
