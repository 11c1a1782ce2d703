"""Runs Beam components on Prism, with worker pools in pods of the pipeline's image.

`PRISM` is the path of Beam's portable runner. Prism tells workers to call it at
localhost, so a pool shares its pod. Everybody shares a volume.
"""

import base64
import gzip
import json
import os
import shlex
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.stream import stream
from real_cluster import CLAIM, Namespace, make_pod, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

REPOSITORY = Path(__file__).parents[2]
PORT = 8073
CHUNK = 1 << 20


@pytest.fixture(scope="module")
def files(namespace: Namespace) -> Namespace:
    """Returns a namespace whose volume has Prism and the examples."""
    if not os.environ.get("PRISM"):
        pytest.skip("PRISM names no program of Beam's portable runner")
    namespace.apply(make_pod("upload", namespace.image, ["sleep", "600"], claims={CLAIM: "/shared"}))
    wait_until(lambda: namespace.pod("upload").status.phase == "Running")
    upload(namespace, Path(os.environ["PRISM"]).read_bytes(), "/shared/prism")
    for example in ("digits", "taxi"):
        for file in (REPOSITORY / "examples" / example).glob("*.*"):
            upload(namespace, file.read_bytes(), f"/shared/{example}/{file.name}")
    namespace.delete_pod("upload")
    return namespace


def upload(namespace: Namespace, content: bytes, path: str) -> None:
    """Writes a file of the volume; requests of Kubernetes carry text only."""
    text = base64.b64encode(gzip.compress(content)).decode()
    script = (
        f"mkdir -p {os.path.dirname(path)}; head -c {len(text)} | base64 -d | gunzip >{path}; chmod +x {path}; echo done"
    )
    # Not the API client of others: it is changed for as long as the stream is open.
    core = client.CoreV1Api(client.ApiClient(namespace.admin.configuration))
    connection = stream(
        core.connect_get_namespaced_pod_exec,
        "upload",
        namespace.name,
        command=["sh", "-c", script],
        stdin=True,
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    for start in range(0, len(text), CHUNK):
        connection.write_stdin(text[start : start + CHUNK])
    connection.run_forever(timeout=120)
    assert connection.read_all() == "done\n"


def start_job_service(namespace: Namespace, name: str, example: str) -> str:
    """Starts Prism and a worker pool in one pod; returns Prism's HOST:PORT.

    Workers import the modules of an example, as if they were those of their image.
    """
    pod = make_pod(
        name, namespace.image, ["/shared/prism", f"-job_port={PORT}", "-serve_http=false"], claims={CLAIM: "/shared"}
    )
    (prism,) = pod["spec"]["containers"]
    pool = {**prism, "name": "workers", "args": ["--worker_pool"]}
    pool["env"] = [{"name": "PYTHONPATH", "value": f"/shared/{example}"}]
    del pool["command"]  # that of the image is Beam's
    for container, port in ((prism, PORT), (pool, 50000)):
        container["readinessProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 1}
    pod["spec"]["containers"].append(pool)
    namespace.apply(pod)

    def is_ready() -> bool:
        statuses = namespace.pod(name).status.container_statuses or ()
        return len(statuses) == 2 and all(status.ready for status in statuses)

    wait_until(is_ready, 120)
    return f"{namespace.pod(name).status.pod_ip}:{PORT}"


def portable(endpoint: str, environment: str, config: str | None = None) -> dict[str, object]:
    # The time is for a machine that does other things, too.
    options = {"artifact_endpoint": endpoint, "job_server_timeout": 240}
    shared = {"runner": "portable", "job_endpoint": endpoint, "environment_type": environment, "options": options}
    return {**shared, **({"environment_config": config} if config else {})}


def external(endpoint: str) -> dict[str, object]:
    return portable(endpoint, "EXTERNAL", "localhost:50000")


@pytest.mark.parametrize("example", ["digits", "taxi"])
def test_a_run_with_all_kinds_of_workers(files, example):
    endpoint = start_job_service(files, f"prism-{example}", example)
    settings = {
        "process": portable(f"localhost:{PORT}", "PROCESS", "/opt/venv/bin/tfx-distribute-beam-worker"),
        "external": external(endpoint),
    }
    prism = f"/shared/prism -job_port={PORT} -serve_http=false >/tmp/prism.log 2>&1"
    for name, beam in settings.items():
        # At the end of the file, as part of its document.
        setting = f"cat pipeline.yaml >{name}.yaml; echo {shlex.quote(json.dumps({'beam': beam})[1:-1])} >>{name}.yaml"
        run = f"exec tfx-distribute run {name}.yaml --root /shared/runs/{example}-{name}"
        files.run(f"step-{example}-{name}", ["sh", "-c", f"{prism} & cd /shared/{example}; {setting}; {run}"], seconds=600)
    files.delete_pod(f"prism-{example}")
