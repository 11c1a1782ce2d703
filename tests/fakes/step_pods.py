"""Runs a pipeline's steps as pods of a real cluster, shaped as Kubeflow shapes them.

Seen on Kubeflow Pipelines 2.17: each of /gcs, /s3, /minio, /.local, /.cache and
/.config is a volume of its own, and /tmp is the container's; capabilities are dropped;
limits are the requests too. KFP's launcher, which copies artifacts from and to the
object store in the step's own container, is a script here, and the object store a
folder of a volume.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeflow_pipelines import SCHEMES, Document, Step, StepError
from real_cluster import ACCOUNT, CLAIM, Namespace

STORE = "object-store"  # a folder of the volume
STEP_SECONDS = 900.0
MARK = "executor output: "
LAUNCHER = """
import json, os, shutil, signal, subprocess, sys
step = json.load(open("/kfp-launcher/step.json"))
for stored, local in step["inputs"]:
    if os.path.isdir(stored):
        shutil.copytree(stored, local, dirs_exist_ok=True, copy_function=shutil.copyfile)
for _, local in step["outputs"]:
    os.makedirs(os.path.dirname(local), exist_ok=True)
os.umask(0)  # as Argo does
process = subprocess.Popen(step["words"])
signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
code = process.wait()
if code:
    sys.exit(code if code > 0 else 128 - code)
for stored, local in step["outputs"]:
    if os.path.isdir(local):
        shutil.copytree(local, stored, copy_function=shutil.copyfile)
    elif os.path.exists(local):
        os.makedirs(os.path.dirname(stored), exist_ok=True)
        shutil.copyfile(local, stored)
if os.path.exists(step["output_file"]):
    print(step["mark"] + json.dumps(json.load(open(step["output_file"]))), flush=True)
"""


@dataclass
class StepPods:
    """Runs steps as pods.

    Attributes:
      namespace: The namespace.
      on_start: Called with each step and the name of its pod when it runs.
      pods: Step -> names of its pods, in their order.
    """

    namespace: Namespace
    on_start: Callable[[Step, str], None] = lambda step, pod: None
    pods: dict[str, list[str]] = field(default_factory=dict)

    def root(self, pod: str) -> str:
        return "/"

    def run(self, step: Step) -> tuple[str, Document]:
        self._write_launcher(step)
        retries = _retries(step.retries)
        attempt = 0
        while True:
            pod = step.pod if attempt == 0 else f"{step.pod}-{attempt}"
            phase, log = self._run_pod(step, pod)
            if phase == "Succeeded":
                break
            # As seen: 2.17 does not repeat what fails.
            if phase != "Deleted" or attempt == retries:
                raise StepError(step.name, f"{log}\nThe pod's end: {phase}")
            attempt += 1
        shown, mark, output = log.rpartition(MARK)
        return (shown, json.loads(output)) if mark else (log, {})

    def _write_launcher(self, step: Step) -> None:
        document = {
            "words": step.words,
            "inputs": [_paths(uri) for uri in step.inputs],
            "outputs": [_paths(uri) for uri in step.outputs],
            "output_file": step.output_file,
            "mark": MARK,
        }
        self.namespace.core.create_namespaced_config_map(
            self.namespace.name,
            {"metadata": {"name": step.pod}, "data": {"launch.py": LAUNCHER, "step.json": json.dumps(document)}},
        )

    def _run_pod(self, step: Step, name: str) -> tuple[str, str]:
        """Runs one attempt; returns the pod's last phase, and what it printed."""
        self.namespace.apply(self._make_pod(step, name))
        self.pods.setdefault(step.name, []).append(name)
        with LogKeeper(self.namespace, lambda: [name]) as log:
            started = threading.Thread(target=self._report_start, args=(step, name), daemon=True)
            started.start()
            phase = self.namespace.wait_for_end(name, STEP_SECONDS)
        # A pod that has ended stays until its run is deleted, and so does what it owns.
        return phase, self.namespace.log(name) or log.texts.get(name, "")

    def _report_start(self, step: Step, name: str) -> None:
        # A pod may wait for room on a node.
        deadline = time.monotonic() + STEP_SECONDS
        while time.monotonic() < deadline:
            if self.namespace.pod(name).status.phase == "Running":
                self.on_start(step, name)
                return
            time.sleep(0.3)

    def _make_pod(self, step: Step, attempt: str) -> Document:
        volumes: list[Document] = [{"name": "kfp-launcher", "configMap": {"name": step.pod}}]
        mounts: list[Document] = [{"name": "kfp-launcher", "mountPath": "/kfp-launcher"}]
        for folder in ("gcs", "s3", "minio", ".local", ".cache", ".config"):
            volume = f"kfp-{folder.strip('.')}"
            volumes.append({"name": volume, "emptyDir": {}})
            mounts.append({"name": volume, "mountPath": f"/{folder}"})
        config = step.config
        # One volume for each claim: Kubernetes waits for ever for a second one.
        claims = {CLAIM: "store"}
        mounts.append({"name": "store", "mountPath": f"/{STORE}", "subPath": STORE})
        for mount in config.get("pvcMount", ()):
            volume = claims.setdefault(mount["constant"], f"claim-{len(claims)}")
            mounts.append({"name": volume, "mountPath": mount["mountPath"]})
        volumes += [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in claims.items()]
        for mount in config.get("emptyDirMounts", ()):
            volumes.append({"name": mount["volumeName"], "emptyDir": {"medium": mount["medium"]}})
            mounts.append({"name": mount["volumeName"], "mountPath": mount["mountPath"]})
        fields = {"KFP_POD_NAME": "metadata.name", "KFP_POD_UID": "metadata.uid", "NAMESPACE": "metadata.namespace"}
        resources = _limits(step.container.get("resources", {}))
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": attempt, "labels": config.get("podMetadata", {}).get("labels", {})},
            "spec": {
                "serviceAccountName": ACCOUNT,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 30,
                "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                "nodeSelector": config.get("nodeSelector", {}).get("labels", {}),
                "tolerations": config.get("tolerations", []),
                "containers": [
                    {
                        "name": "main",
                        "image": step.container["image"],
                        "command": ["python", "/kfp-launcher/launch.py"],
                        "env": [
                            *step.container.get("env", ()),
                            *(
                                {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                                for variable, path in fields.items()
                            ),
                        ],
                        "resources": {"limits": resources, "requests": resources},
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                            **config.get("securityContext", {}),
                        },
                        "volumeMounts": mounts,
                    }
                ],
                "volumes": volumes,
            },
        }


class LogKeeper:
    """Keeps what pods print, since a pod that is deleted takes its log along.

    Args:
      namespace: Their namespace.
      find_pods: Returns their names.

    Attributes:
      texts: Name of a pod -> what it has printed.
    """

    def __init__(self, namespace: Namespace, find_pods: Callable[[], list[str]]):
        self.texts: dict[str, str] = {}
        self._namespace, self._find_pods = namespace, find_pods
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "LogKeeper":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            try:
                for pod in self._find_pods():
                    self.texts[pod] = max(self.texts.get(pod, ""), self._namespace.log(pod), key=len)
            except Exception as error:  # the next look may succeed
                print(f"logs cannot be read: {error}", file=sys.stderr)


def stored_path(uri: str) -> str:
    """Returns the path of an address in the object store, below the volume's root."""
    return f"{STORE}/{uri.replace('://', '/')}"


def _paths(uri: str) -> tuple[str, str]:
    """Returns the path of an address in the object store, and in the container."""
    scheme, _, rest = uri.partition("://")
    return f"/{stored_path(uri)}", f"/{SCHEMES[scheme]}/{rest}"


def _retries(policy: Document) -> int:
    """Returns how often a step may be repeated: without a duration, no version does."""
    seconds = float(str(policy.get("backoffMaxDuration", "0s")).removesuffix("s"))
    return int(policy.get("maxRetryCount", 0)) if seconds else 0


def _limits(resources: Mapping[str, Any]) -> dict[str, str]:
    names = {"resourceCpuLimit": "cpu", "resourceMemoryLimit": "memory"}
    limits = {name: str(resources[key]) for key, name in names.items() if key in resources}
    if "accelerator" in resources:
        limits[resources["accelerator"]["resourceType"]] = resources["accelerator"]["resourceCount"]
    return limits
