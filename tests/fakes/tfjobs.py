"""TFJobs whose pods and statuses a test sets, and the launcher that follows them."""

from pathlib import Path

import yaml
from launching import Launch, pod_templates
from running import wait_until

from tfx_distribute.components.launchers.kubernetes.launcher import KubernetesLauncher
from tfx_distribute.components.launchers.kubernetes.pod_template import Step
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.components.launchers.kubernetes.tfjob import TFJob
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.job.training_job import Distribution

NAME, NAMESPACE = "digits-1", "team"
ROLE = Path(__file__).parents[2] / "docs" / "trainer-role.yaml"
ALLOWED = {
    (group, resource, verb)
    for rule in yaml.safe_load(ROLE.read_text())["rules"]
    for group in rule["apiGroups"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
}
TEMPLATE = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
SETTINGS = KubernetesSettings("digits", TEMPLATE, TEMPLATE, training="tfjob")


def step(name, uid):
    """Returns the pod of a pipeline's step."""
    return Step(name, uid, "runner", 1000, 1000)


def training(workers=1):
    distribution = Distribution("multi_worker_mirrored", num_workers=workers) if workers > 1 else Distribution()
    return Training(NAME, "/job.json", distribution, {}, 3)


def make_launcher(workers=1):
    """Returns a launcher that has made a request."""
    made = KubernetesLauncher(SETTINGS)
    made.request(training(workers))
    return made


def tfjob(command="exit 0", workers=1, owner=None):
    """Returns a TFJob whose pods run a shell command."""
    manifest = TFJob().make_manifest(training(workers), SETTINGS, owner)
    for template in pod_templates(manifest):
        template["spec"]["containers"][0]["command"] = ["sh", "-c", command]
    return manifest


def follow(manifest=None, workers=1, **options):
    return Launch(make_launcher(workers), manifest or tfjob(workers=workers), **options)


def condition(kind, **more):
    at = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": "True", "reason": f"TFJob{kind}", "lastTransitionTime": at, "lastUpdateTime": at, **more}


def status(*conditions, **replicas):
    return {"conditions": list(conditions), "replicaStatuses": replicas}


def exists(api):
    return NAME in [job["metadata"]["name"] for job in api.objects("tfjobs")]


def start(api, **arguments):
    launch = follow(**arguments)
    wait_until(lambda: exists(api))
    return launch


def wait_until_seen(api, launch=None):
    """Waits until a launcher has seen the current TFJob and its pods, or has ended."""

    def count_requests():
        return sum(verb == "get" and path.endswith(f"/tfjobs/{NAME}") for verb, path in api.requests)

    before = count_requests()
    # It asks for the pods between two of them.
    wait_until(lambda: count_requests() >= before + 2 or (launch and not launch.is_running))


def pod(name="digits-1-chief-0", uid="1", exit_code=None, reason=None, replica="chief"):
    labels = {"training.kubeflow.org/job-name": NAME, "training.kubeflow.org/replica-type": replica}
    labels["training.kubeflow.org/replica-index"] = name.rpartition("-")[2]
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": uid,
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": []},
        "status": {"phase": "Running"},
    }
    if exit_code is not None:
        terminated = {"exitCode": exit_code, "reason": reason or "Error", "finishedAt": "2026-01-01T00:00:01Z"}
        container = {
            "name": "tensorflow",
            "ready": False,
            "restartCount": 0,
            "image": "i",
            "imageID": "",
            "state": {"terminated": terminated},
        }
        document["status"] = {"phase": "Failed", "containerStatuses": [container]}
    return document
