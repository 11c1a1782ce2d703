"""TFJobs whose pods and statuses a test sets, and the launcher that follows them."""

from pathlib import Path

import yaml
from launching import Launch
from running import wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import KubernetesSettings, Step, TFJob
from tfx_distribute.components.launchers.kubernetes.launcher import KubernetesLauncher
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


TRAINING = Training(NAME, "/job.json", Distribution(), {}, 3)


def make_launcher():
    """Returns a launcher that has made a request."""
    made = KubernetesLauncher(SETTINGS)
    made.request(TRAINING)
    return made


def tfjob(owner=None):
    return TFJob().make_manifest(TRAINING, SETTINGS, owner)


def follow(manifest=None, **options):
    return Launch(make_launcher(), manifest or tfjob(), **options)


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
