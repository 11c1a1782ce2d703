"""Tests through the SDK that the fake of Vertex AI behaves as documented."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from google.api_core import exceptions, retry
from google.cloud import aiplatform
from google.cloud.aiplatform_v1 import types
from running import is_running, wait_until
from vertex_admission import REDUCTION_SERVER, Document
from vertex_api import QUOTA, Task, VertexApi
from vertex_pools import Options

PARENT = "projects/project/locations/us-central1"
OPTIONS = Options(worker_restarts=1, job_restarts=1, grace=0.5, environment={"FROM_TEST": "yes"})
FINAL = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")
KEY = "projects/project/locations/us-central1/keyRings/ring/cryptoKeys/key"


@pytest.fixture
def options() -> Options:
    return OPTIONS


@pytest.fixture
def api(tmp_path: Path, options: Options) -> Iterator[VertexApi]:
    with VertexApi(tmp_path, options) as server, server.connected():
        server.around.make_bucket("bucket")
        aiplatform.init(project="project", location="us-central1")  # as everybody does, and it is still led here
        yield server


def client() -> Any:
    return aiplatform.initializer.global_config.create_client(client_class=aiplatform.utils.JobClientWithOverride)


def pool(script: str = "pass", replicas: int = 1, machine: Document | None = None, **container: object) -> Document:
    spec = {"image_uri": "image", "command": ["python", "-c"], "args": [script], **container}
    return {"replica_count": replicas, "machine_spec": machine or {"machine_type": "n1-standard-4"}, "container_spec": spec}


def create(*pools: Document, labels: Document | None = None, **spec: object) -> str:
    job = {"display_name": "job", "labels": labels or {}, "job_spec": {"worker_pool_specs": list(pools), **spec}}
    return client().create_custom_job(parent=PARENT, custom_job=job).name


def finished(api: VertexApi, name: str) -> types.CustomJob:
    """A job when it has ended and has its error, as the SDK has it."""
    wait_until(lambda: api.state(name) in FINAL)
    wait_until(lambda: api.state(name) != "JOB_STATE_FAILED" or api.get(name).error.code)
    return client().get_custom_job(name=name)


def refusal(call: Callable[..., object], *arguments: object, **options: object) -> str:
    with pytest.raises(exceptions.BadRequest) as refused:
        call(*arguments, **options)
    return str(refused.value)


def test_jobs_are_created_found_by_their_labels_cancelled_and_deleted(api):
    name = create(pool("import time; time.sleep(60)"), labels={"run": "a"})
    other = create(pool(), labels={"run": "b"})
    assert name.startswith(f"projects/{api.number}/locations/us-central1/customJobs/")
    assert finished(api, other).state.name == "JOB_STATE_SUCCEEDED"
    for wanted in (
        'labels.run="a"',
        "labels.run=a AND state!=JOB_STATE_SUCCEEDED",
        'displayName="job" AND labels.run:* AND labels.run!="b"',
    ):
        (found,) = client().list_custom_jobs(request={"parent": PARENT, "filter": wanted})
        assert found.name == name
    assert [job.name for job in client().list_custom_jobs(request={"parent": PARENT, "page_size": 1})] == [other, name]
    (job,) = aiplatform.CustomJob.list(filter='labels.run="a"')
    assert "Invalid filter" in refusal(aiplatform.CustomJob.list, filter="name~a")
    assert "has not ended" in refusal(client().delete_custom_job, name=name)
    job.cancel()
    with pytest.raises(RuntimeError, match="CANCELED"):
        job.wait_for_completion()
    assert "cannot be cancelled" in refusal(job.cancel)
    client().delete_custom_job(name=f"{PARENT}/customJobs/{name.rpartition('/')[2]}").result()
    with pytest.raises(exceptions.NotFound, match="The CustomJob does not exist"):
        client().get_custom_job(name=name)
    first = api.requests[0]
    assert (first.verb, first.message.labels["run"]) == ("customJobs.create", "a")
    assert "customJobs.cancel" in [request.verb for request in api.requests]


def test_other_places_are_refused(api):
    with pytest.raises(exceptions.Forbidden, match=r"Permission 'aiplatform.customJobs.list' denied on resource"):
        client().list_custom_jobs(parent="projects/other/locations/us-central1")
    with pytest.raises(exceptions.NotFound, match="europe-west4"):
        client().list_custom_jobs(parent="projects/project/locations/europe-west4")


def test_what_is_no_custom_job_is_refused(api):
    url = f"{api.url}/v1/{PARENT}/customJobs"
    spec = {"workerPoolSpecs": [{"containerSpec": {"imageUri": "a"}, "pythonPackageSpec": {"pythonModule": "b"}}]}
    for body in ("nothing", "[]", '{"color": 1}', '{"displayName": {}}', json.dumps({"jobSpec": spec})):
        answer = requests.post(url, data=body, timeout=10)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
        assert error["message"].startswith("Invalid JSON payload received.")
    assert requests.get(f"{api.url}/v1/{PARENT}/models", timeout=10).status_code == 404


GPU = {"machine_type": "n1-standard-8", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1}
TPU = {"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "4x4"}
RESERVED = {"reservation_affinity_type": "SPECIFIC_RESERVATION"}
NAMED = {"key": "compute.googleapis.com/reservation-name", "values": ["projects/p/zones/z/reservations/r"]}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "job_spec.worker_pool_specs;"),
        ({"worker_pool_specs": [pool()] * 5}, "no more than 4"),
        ({"worker_pool_specs": [{}, pool()]}, "worker_pool_specs[0].task"),
        ({"worker_pool_specs": [pool(replicas=2)]}, "worker_pool_specs[0].replica_count"),
        ({"worker_pool_specs": [pool(), pool(replicas=0)]}, "worker_pool_specs[1].replica_count"),
        ({"worker_pool_specs": [pool(image_uri="")]}, "container_spec.image_uri"),
        ({"worker_pool_specs": [pool(machine={"accelerator_count": 0})]}, "machine_spec.machine_type"),
        ({"worker_pool_specs": [pool(machine={"machine_type": "big"})]}, 'Machine type "big" is not supported'),
        ({"worker_pool_specs": [pool(machine={**GPU, "accelerator_count": 0})]}, "should be specified or none"),
        (
            {"worker_pool_specs": [pool(machine={**GPU, "machine_type": "e2-standard-8"})]},
            'Accelerator "NVIDIA_TESLA_T4" is not',
        ),
        ({"worker_pool_specs": [pool(machine={**GPU, "accelerator_type": 99})]}, 'Accelerator "99" is not supported'),
        ({"worker_pool_specs": [pool(machine={"machine_type": "a2-highgpu-1g"})]}, "An accelerator is required"),
        ({"worker_pool_specs": [pool(machine=TPU), pool()]}, "which is the only one"),
        ({"worker_pool_specs": [pool(machine={**GPU, "tpu_topology": "2x2"})]}, "machine_spec.tpu_topology"),
        ({"worker_pool_specs": [pool(machine={**GPU, "reservation_affinity": RESERVED})]}, "reservation_affinity.values"),
        ({"worker_pool_specs": [pool(image_uri=REDUCTION_SERVER)]}, "only for the third worker pool"),
        ({"worker_pool_specs": [pool(), {}, pool(image_uri=REDUCTION_SERVER)]}, "neither command nor args"),
        ({"worker_pool_specs": [pool(env=[{"name": "a-b", "value": "1"}])]}, "valid C identifier"),
        ({"worker_pool_specs": [pool(env=[{"name": "A"}])]}, "env[0].value"),
        ({"worker_pool_specs": [{**pool(), "disk_spec": {"boot_disk_type": "ssd"}}]}, "disk_spec.boot_disk_type"),
        ({"worker_pool_specs": [{**pool(), "disk_spec": {"boot_disk_size_gb": 50}}]}, "disk_spec.boot_disk_size_gb"),
        ({"scheduling": {"strategy": 99}}, "scheduling.strategy"),
        ({"scheduling": {"max_wait_duration": "60s"}}, "only for the strategy FLEX_START"),
        ({"scheduling": {"timeout": "0s"}}, "scheduling.timeout"),
        ({"network": "default"}, "job_spec.network"),
        ({"service_account": "me"}, "job_spec.service_account"),
        ({"tensorboard": f"{PARENT}/tensorboards/1"}, "job_spec.service_account"),
        ({"base_output_directory": {"output_uri_prefix": "/tmp"}}, "base_output_directory.output_uri_prefix"),  # noqa: S108
    ],
)
@pytest.mark.filterwarnings("ignore:Unrecognized")
def test_what_the_service_does_not_take_is_refused(api, spec, field):
    message = refusal(client().create_custom_job, parent=PARENT, custom_job={"display_name": "job", "job_spec": spec})
    assert "List of found errors:\t1.Field: job_spec." in message
    assert field in message


def test_what_all_jobs_have_is_checked(api):
    job = {"job_spec": {"worker_pool_specs": [pool()]}, "labels": {"Run": "a"}, "encryption_spec": {"kms_key_name": "key"}}
    message = refusal(client().create_custom_job, parent=PARENT, custom_job=job)
    for field in ("1.Field: display_name", "2.Field: labels", "3.Field: encryption_spec.kms_key_name"):
        assert field in message


def test_all_that_is_allowed_is_taken(api):
    api.pools.held = True
    machines = [
        GPU,
        {**TPU},
        {"machine_type": "a2-highgpu-1g", "accelerator_type": "NVIDIA_TESLA_A100", "accelerator_count": 1},
    ]
    spec = {
        "network": "projects/12345/global/networks/net",
        "service_account": "me@project.iam.gserviceaccount.com",
        "tensorboard": f"{PARENT}/tensorboards/1",
        "scheduling": {"strategy": "FLEX_START", "timeout": "3600s", "max_wait_duration": "1800s"},
        "base_output_directory": {"output_uri_prefix": "gs://bucket/output"},
    }
    for machine in machines:
        disk = {"boot_disk_type": "pd-standard", "boot_disk_size_gb": 200}
        job = {
            "display_name": "job",
            "job_spec": {"worker_pool_specs": [{**pool(machine=machine), "disk_spec": disk}], **spec},
        }
        client().create_custom_job(parent=PARENT, custom_job={**job, "encryption_spec": {"kms_key_name": KEY}})
    create(pool(machine={**GPU, "reservation_affinity": {**RESERVED, **NAMED}}))
    assert {job.state.name for job in api.all("customJobs")} == {"JOB_STATE_QUEUED"}


def test_replicas_are_told_of_their_cluster(api):
    script = "import os; print(*(os.environ[name] for name in ('TF_CONFIG', 'CLUSTER_SPEC', 'FROM_TEST', 'B')), sep='\\n')"
    reducer = pool(replicas=2, image_uri=REDUCTION_SERVER, command=[], args=[])
    waits = "import time; time.sleep(60)"
    env = [{"name": "A", "value": "x"}, {"name": "B", "value": "$(A)y$$(A)$(C) $(AIP_MODEL_DIR)"}]
    output = {"output_uri_prefix": "gs://bucket/output"}
    name = create(pool(script, env=env), pool(waits, 2), reducer, pool(waits), base_output_directory=output)
    job = finished(api, name)
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert job.create_time <= job.start_time <= job.end_time <= job.update_time
    config, spec, *others = api.printed(name).splitlines()
    assert others == ["yes", "xy$(A)$(C) gs://bucket/output/model/"]
    config, spec = json.loads(config), json.loads(spec)
    assert (config["task"], config["environment"]) == ({"type": "chief", "index": 0}, "cloud")
    assert {role: len(hosts) for role, hosts in config["cluster"].items()} == {"chief": 1, "worker": 2, "ps": 2}
    assert spec["task"] == {"type": "workerpool0", "index": 0}
    assert spec["cluster"]["workerpool1"] == config["cluster"]["worker"]
    assert set(spec["cluster"]) == {f"workerpool{number}" for number in range(4)}
    assert json.loads(config["job"])["base_output_directory"] == output
    lone = create(pool("import os; print(os.environ['TF_CONFIG'], os.environ['CLOUD_ML_JOB_ID'])"))
    finished(api, lone)
    config, _, ident = api.printed(lone).strip().rpartition(" ")
    assert set(json.loads(config)["cluster"]) == {"chief"}
    assert lone.endswith(f"/{ident}")


@pytest.mark.parametrize("options", [Options(lone_tf_config=False, evaluator_in_cluster=True)])
def test_documents_and_logs_of_the_service_differ(api):
    script = "import os; print(sorted(__import__('json').loads(os.environ.get('TF_CONFIG', '{}')).get('cluster', '')))"
    lone, four = create(pool(script)), create(pool(script), {}, {}, pool("import time; time.sleep(60)"))
    assert [finished(api, name).state.name for name in (lone, four)] == ["JOB_STATE_SUCCEEDED"] * 2
    assert [api.printed(name).strip() for name in (lone, four)] == ["[]", "['chief', 'evaluator']"]


FOREVER = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    time.sleep(1)
"""
POLITE = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: (print("asked", flush=True), os._exit(1)))
print("up", flush=True)
time.sleep(60)
"""


def test_a_job_succeeds_with_its_primary_replica(api, tmp_path):
    waits = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)"
    name = create(pool(waits), pool(FOREVER, 2), pool("pass"))
    wait_until(lambda: all("up" in api.printed(name, f"workerpool1-{index}") for index in (0, 1)))
    wait_until(lambda: set(api.pids(name)) == {"workerpool0-0", "workerpool1-0", "workerpool1-1"})
    pids = list(api.pids(name).values())
    assert api.state(name) == "JOB_STATE_RUNNING"
    (tmp_path / "go").touch()
    assert finished(api, name).state.name == "JOB_STATE_SUCCEEDED"
    assert not any(map(is_running, pids))


def test_what_fails_is_tried_again_in_its_place_and_then_all(api):
    tells = "import json, os; print(json.loads(os.environ['CLUSTER_SPEC'])['cluster']['workerpool1']); raise SystemExit(3)"
    name = create(pool(FOREVER), pool(tells))
    job = finished(api, name)
    assert (job.state.name, job.error.code) == ("JOB_STATE_FAILED", 3)
    lines = api.printed(name, "workerpool1-0").splitlines()
    assert (len(lines), len(set(lines))) == (4, 1)  # twice in each of two attempts, always at the same address
    assert job.error.message.startswith(
        f"The replica workerpool1-0 exited with a non-zero status of 3. Termination reason: Error. \n{lines[0]}\n\n"
        "To find out more about why your job exited please check the logs: "
        f"https://console.cloud.google.com/logs/viewer?project={api.number}&resource=ml_job%2Fjob_id%2F"
    )
    assert len(job.error.message.split(name.rpartition("/")[2])) == 3
    with pytest.raises(RuntimeError, match="Job failed with:\ncode: 3"):
        aiplatform.CustomJob.get(name).wait_for_completion()


def test_a_replica_that_is_started_again_can_succeed(api):
    name = create(pool("import os, sys; there = os.path.exists('tried'); open('tried', 'w').close(); sys.exit(not there)"))
    assert finished(api, name).state.name == "JOB_STATE_SUCCEEDED"
    name = create(pool(command=["no-such-program"], args=[]), scheduling={"disable_retries": True})
    assert "status of 128. Termination reason: StartError" in finished(api, name).error.message


@pytest.mark.parametrize(("options", "code"), [(Options(permanent=[3]), 3), (Options(), 1)])
def test_some_failures_are_final(api, code):
    name = create(pool(f"print('once'); raise SystemExit({code})"), scheduling={"disable_retries": code == 1})
    assert finished(api, name).state.name == "JOB_STATE_FAILED"
    assert api.printed(name) == "once\n"


def test_all_are_started_again_with_one(api):
    # Both run in the folder of their job. The worker fails once, after the primary
    # replica has started.
    chief = (
        "import os, time; there = os.path.exists('up'); print(there, flush=True); open('up', 'w'); there or time.sleep(60)"
    )
    waits = "import os, sys, time\nwhile not os.path.exists('up'): time.sleep(0.02)\n"
    worker = f"{waits}there = os.path.exists('tried'); open('tried', 'w'); sys.exit(not there)"
    name = create(pool(chief), pool(worker), scheduling={"restart_job_on_worker_restart": True})
    assert finished(api, name).state.name == "JOB_STATE_SUCCEEDED"
    assert api.printed(name) == "False\nTrue\n"


@pytest.mark.parametrize("options", [Options(grace=60)])
def test_a_job_that_is_cancelled_asks_its_replicas_to_end(api):
    name = create(pool(POLITE), pool(POLITE))
    wait_until(lambda: all("up" in api.printed(name, f"workerpool{number}-0") for number in (0, 1)))
    pids = list(api.pids(name).values())
    client().cancel_custom_job(name=name)
    assert client().get_custom_job(name=name).state.name in ("JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED")
    job = finished(api, name)
    assert (job.state.name, job.error.message) == ("JOB_STATE_CANCELLED", "CANCELED")
    assert not any(map(is_running, pids))
    assert api.printed(name) == "up\nasked\n"
    api.pools.held = True
    queued = create(pool())
    client().cancel_custom_job(name=queued)
    assert finished(api, queued).start_time is None


def test_a_job_that_runs_too_long_is_cancelled(api):
    name = create(pool("import time; time.sleep(60)"), scheduling={"timeout": "1s"})
    job = finished(api, name)
    assert job.state.name == "JOB_STATE_CANCELLED"
    assert "timeout of 1 seconds" in job.error.message


def test_maintenance_moves_a_replica(api):
    name = create(pool("import time; print('start', flush=True); time.sleep(60)"))
    for starts in (1, 2, 3):  # more often than a failure is tried again
        wait_until(lambda starts=starts: api.printed(name).count("start") == starts)
        api.pools.restart(name, "workerpool0-0")
    assert api.state(name) == "JOB_STATE_RUNNING"
    assert not client().get_custom_job(name=name).error.message


def test_requests_fail_as_they_are_told(api):
    api.fail(429, verb="customJobs.create")
    api.fail(403, verb="customJobs.create")
    api.fail(503, times=2, message="Not now.")
    with pytest.raises(exceptions.ServiceUnavailable, match="Not now"):
        client().list_custom_jobs(parent=PARENT)
    with pytest.raises(exceptions.TooManyRequests, match=QUOTA):
        create(pool())
    with pytest.raises(exceptions.Forbidden, match=r"Permission 'aiplatform.customJobs.create' denied"):
        create(pool())
    with pytest.raises(exceptions.ServiceUnavailable):
        create(pool())
    assert not api.all("customJobs")
    api.outage(60, 500)
    with pytest.raises(exceptions.InternalServerError):
        create(pool())
    api.outage(0)
    assert not list(client().list_custom_jobs(parent=PARENT))


def test_connections_break(api):
    name = create(pool())
    api.drop()
    with pytest.raises(requests.exceptions.ConnectionError):
        client().get_custom_job(name=name)
    api.drop(verb="customJobs.create", after=True)
    with pytest.raises(requests.exceptions.ConnectionError):
        create(pool(), labels={"run": "lost"})
    (found,) = client().list_custom_jobs(request={"parent": PARENT, "filter": "labels.run=lost"})
    api.unreachable(60)
    with pytest.raises(requests.exceptions.ConnectionError):
        client().get_custom_job(name=found.name)
    api.unreachable(0)
    api.silent(60)
    with pytest.raises(requests.exceptions.ReadTimeout):
        client().get_custom_job(name=name, timeout=0.2)
    api.silent(0)
    api.drop(2)
    again = retry.Retry(initial=0.01, maximum=0.01, timeout=20)
    assert client().get_custom_job(name=name, retry=again).name == name


def test_a_job_goes_through_the_states_that_are_planned(api):
    api.plan(
        "JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_FAILED", error="Internal error occurred for the current attempt"
    )
    name = create(pool(command=[], args=[]))
    states = [client().get_custom_job(name=name).state.name for _ in range(4)]
    assert states == ["JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_FAILED", "JOB_STATE_FAILED"]
    assert not api.get(name).error.message, "the service sets the error later than the state"
    wait_until(lambda: "Internal error" in api.get(name).error.message)
    api.plan("JOB_STATE_RUNNING")
    name = create(pool())
    client().cancel_custom_job(name=name)
    assert api.state(name) == "JOB_STATE_CANCELLING"
    assert client().get_custom_job(name=name).state.name == "JOB_STATE_CANCELLED"


def test_jobs_are_changed_behind_ones_back(api):
    name, other = create(pool(FOREVER)), create(pool(FOREVER))
    wait_until(lambda: api.pids(name) and api.pids(other))
    pids = [*api.pids(name).values(), *api.pids(other).values()]
    api.delete(name)
    api.set_state(other, "JOB_STATE_FAILED", "somebody else's")
    assert not any(map(is_running, pids))
    with pytest.raises(exceptions.NotFound):
        client().get_custom_job(name=name)
    assert finished(api, other).error.message == "somebody else's"


def test_nothing_outlives_the_stand_in(tmp_path):
    with VertexApi(tmp_path, OPTIONS) as api:
        with api.connected():
            name = create(pool(FOREVER), pool("import time; time.sleep(60)"))
        wait_until(lambda: len(api.pids(name)) == 2)
        pids = list(api.pids(name).values())
    assert not any(map(is_running, pids))
    assert aiplatform.initializer.global_config.api_endpoint is None


def pipeline(folder: Path, version: str = "2.1.0", **changes: object) -> str:
    """A compiled pipeline with a parameter."""
    kind = {"type": "INT"} if version == "2.0.0" else {"parameterType": "NUMBER_INTEGER"}
    tasks = {name: {"taskInfo": {"name": name}, "componentRef": {"name": "component"}} for name in ("ExampleGen", "Trainer")}
    spec = {
        "pipelineInfo": {"name": "digits"},
        "schemaVersion": version,
        "sdkVersion": "tfx-1.16.0",
        "root": {"inputDefinitions": {"parameters": {"epochs": kind}}, "dag": {"tasks": tasks}},
        "components": {"component": {"executorLabel": "executor"}},
        "deploymentSpec": {"executors": {"executor": {"container": {"image": "image", "command": ["true"]}}}},
        **changes,
    }
    document = spec if version != "2.0.0" else {"pipelineSpec": spec, "runtimeConfig": {"gcsOutputDirectory": "gs://bucket"}}
    file = folder / "pipeline.json"
    file.write_text(json.dumps(document))
    return str(file)


def pipeline_job(path: str, job_id: str = "one", **options: object) -> aiplatform.PipelineJob:
    options = {"parameter_values": {"epochs": 3}, "pipeline_root": "gs://bucket/root", "job_id": job_id, **options}
    return aiplatform.PipelineJob(display_name="digits", template_path=path, **options)


@pytest.mark.parametrize("version", ["2.0.0", "2.1.0"])
def test_a_pipeline_job_goes_through_the_states_that_are_planned(api, tmp_path, version):
    job = pipeline_job(pipeline(tmp_path, version), labels={"run": "a"})
    api.plan("PIPELINE_STATE_RUNNING", "PIPELINE_STATE_SUCCEEDED", tasks=[Task("ExampleGen"), Task("Trainer", "SKIPPED")])
    job.submit(service_account="me@project.iam.gserviceaccount.com", network="projects/1/global/networks/net")
    job.wait()
    assert {detail.task_name: detail.state.name for detail in job.task_details} == {
        "ExampleGen": "SUCCEEDED",
        "Trainer": "SKIPPED",
    }
    (found,) = aiplatform.PipelineJob.list(filter='labels.run="a" AND display_name="digits"')
    assert found.resource_name == f"projects/{api.number}/locations/us-central1/pipelineJobs/one"
    message = next(request.message for request in api.requests if request.verb == "pipelineJobs.create")
    assert message.runtime_config.gcs_output_directory == "gs://bucket/root"
    assert message.service_account == "me@project.iam.gserviceaccount.com"
    with pytest.raises(exceptions.Conflict, match="already exists"):
        pipeline_job(pipeline(tmp_path, version)).submit()


def test_a_pipeline_job_fails_with_its_task(api, tmp_path):
    job = pipeline_job(pipeline(tmp_path))
    job.submit()
    assert job.state.name == "PIPELINE_STATE_PENDING"
    failed = Task("Trainer", "FAILED", "no such model", f"{api.parent}/customJobs/1")
    api.set_state(job.resource_name, "PIPELINE_STATE_FAILED", tasks=[Task("ExampleGen"), failed])
    with pytest.raises(RuntimeError, match=r"code: 9\nmessage: .*The failed tasks are: \[Trainer\]"):
        job.wait()
    detail = job.task_details[1]
    assert (detail.state.name, detail.error.message) == ("FAILED", "no such model")
    assert detail.executor_detail.container_detail.main_job.endswith("/customJobs/1")
    other = pipeline_job(pipeline(tmp_path), "two")
    other.submit()
    other.cancel()
    assert other.state.name == "PIPELINE_STATE_CANCELLED"


def test_what_is_wrong_with_a_pipeline_job_is_refused(api, tmp_path):
    cases: list[tuple[Document, Document, str]] = [
        ({}, {"parameter_values": {}}, "epochs has no default value and is not given"),
        ({}, {"parameter_values": {"epochs": "3"}}, "epochs is of type NUMBER_INTEGER"),
        ({}, {"parameter_values": {"epochs": 3.5}}, "epochs is of type NUMBER_INTEGER"),
        ({}, {"pipeline_root": "/root"}, "runtime_config.gcs_output_directory"),
        ({}, {"labels": {"Run": "a"}}, "1.Field: labels"),
        ({}, {"encryption_spec_key_name": "key"}, "encryption_spec.kms_key_name"),
        ({"color": "red"}, {}, 'no field named "color"'),
        ({"deploymentSpec": {"executors": {}}}, {}, "There is no executor executor"),
        ({"components": {}}, {}, "There is no component"),
        ({"schemaVersion": "2.2.0"}, {}, "Unsupported schema version: 2.2.0"),
    ]
    for changes, options, expected in cases:
        assert expected in refusal(pipeline_job(pipeline(tmp_path, **changes), **options).submit)
    assert not api.all("pipelineJobs")


def test_schedules_are_created(api, tmp_path):
    job = pipeline_job(pipeline(tmp_path))
    schedule = job.create_schedule(cron="TZ=Europe/Berlin 0 3 * * 1-5", display_name="nightly", max_concurrent_run_count=2)
    assert schedule.state.name == "ACTIVE"
    found = aiplatform.PipelineJobSchedule.get(schedule.resource_name.rpartition("/")[2])
    assert (found.cron, found.max_concurrent_run_count) == ("TZ=Europe/Berlin 0 3 * * 1-5", 2)
    (kept,) = api.all("schedules")
    assert kept.create_pipeline_job_request.parent == PARENT
    assert 'Invalid cron: "daily"' in refusal(job.create_schedule, cron="daily", display_name="daily")
    broken = pipeline_job(pipeline(tmp_path), parameter_values={})
    message = refusal(broken.create_schedule, cron="0 3 * * *", display_name="broken")
    assert "schedule.create_pipeline_job_request.pipeline_job.runtime_config" in message
