"""Tests that the project around the fake of Vertex AI is as strict as documented."""

import json
from collections.abc import Iterator
from pathlib import Path

import gcloud
import pytest
import requests
from google.api_core import exceptions
from google.cloud import aiplatform
from running import wait_until
from vertex_api import VertexApi
from vertex_pools import Options

PERSON = "person@example.com"
ACCOUNT = "trainer@project.iam.gserviceaccount.com"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[VertexApi]:
    with VertexApi(tmp_path, Options(start_spacing=0.5, grace=0.5)) as server:
        yield server


def create_job(api: VertexApi, pools: int = 1, script: str = "pass", **machine: object) -> str:
    client = aiplatform.initializer.global_config.create_client(client_class=aiplatform.utils.JobClientWithOverride)
    pool = {
        "replica_count": 1,
        "machine_spec": {"machine_type": "n1-standard-4", **machine},
        "container_spec": {"image_uri": "image", "command": ["python", "-c", script]},
    }
    job = {"display_name": "job", "job_spec": {"worker_pool_specs": [pool] * pools, "service_account": ACCOUNT}}
    return str(client.create_custom_job(parent="projects/project/locations/us-central1", custom_job=job).name)


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_roles_decide_what_an_account_may_do(api, transport):
    with api.connected(transport, PERSON):
        with pytest.raises(exceptions.Forbidden, match=r"Permission 'aiplatform.customJobs.create' denied on resource"):
            create_job(api)
        api.around.iam.grant("projects/project", "roles/aiplatform.user", f"user:{PERSON}")
        with pytest.raises(exceptions.BadRequest, match=r"act as service_account: trainer@.*may not exist"):
            create_job(api)
        api.around.iam.grant(f"serviceAccounts/{ACCOUNT}", "roles/iam.serviceAccountUser", f"user:{PERSON}")
        create_job(api)
    assert (PERSON, "aiplatform.customJobs.create", "projects/project") in api.around.iam.used


def test_quotas_count_what_runs(api):
    gpu = {"machine_type": "n1-standard-8", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1}
    api.around.limits["aiplatform.googleapis.com/custom_model_training_nvidia_t4_gpus"] = 1
    with api.connected():
        create_job(api, script="import time; time.sleep(60)", **gpu)
        with pytest.raises(exceptions.TooManyRequests, match="exceed quota limits: .*/custom_model_training_nvidia_t4_gpus"):
            create_job(api, **gpu)
        create_job(api)


def test_replicas_start_one_after_another(api):
    with api.connected():
        name = create_job(api, pools=2, script="import time; time.sleep(60)")
    wait_until(lambda: api.pids(name))
    assert set(api.pids(name)) == {"workerpool1-0"}, "the primary replica is not the first"
    assert api.state(name) == "JOB_STATE_RUNNING"
    wait_until(lambda: len(api.pids(name)) == 2)


def test_the_sdk_creates_a_bucket_that_does_not_exist(api, tmp_path):
    """So a typo makes a bucket: what our own check prevents."""
    spec = {
        "pipelineInfo": {"name": "mine"},
        "schemaVersion": "2.1.0",
        "root": {"dag": {"tasks": {"one": {"taskInfo": {"name": "one"}, "componentRef": {"name": "one"}}}}},
        "components": {"one": {"executorLabel": "one"}},
        "deploymentSpec": {"executors": {"one": {"container": {"image": "image", "command": ["true"]}}}},
    }
    (tmp_path / "pipeline.json").write_text(json.dumps(spec))
    with api.connected():
        job = aiplatform.PipelineJob("mine", str(tmp_path / "pipeline.json"), pipeline_root="gs://buckett/root")
        job.submit()
    assert api.around.created == ["buckett"]


def test_queries_are_read_strictly(api):
    url = f"{api.url}/v1/projects/project/locations/us-central1/customJobs"
    answer = requests.get(url, params={"filters": "state=1"}, timeout=10)
    assert answer.status_code == 400
    assert 'Unknown name "filters": Cannot bind query parameter' in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "command",
    [
        "gcloud projects add-iam-policy-binding project --member=user:a@b.c --role=roles/aiplatform.user",
        "gcloud projects add-iam-policy-binding project --condition=None --member=a@b.c --role=roles/aiplatform.user",
        "gcloud projects add-iam-policy-binding project --condition=None --member=user:a@b.c --role=roles/wizard",
        "gcloud storage buckets add-iam-policy-binding gs://none --member=user:a@b.c --role=roles/storage.objectUser",
    ],
)
def test_wrong_gcloud_commands_are_refused(api, command):
    with pytest.raises(ValueError, match=r"refuses|not supported|not found"):
        gcloud.run_script(command, api.around)
