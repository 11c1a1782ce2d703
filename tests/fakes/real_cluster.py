"""Gives tests a namespace of their own on a real Kubernetes cluster.

Whatever `KUBECONFIG` names: kind, k3d, a cloud's. Nothing here knows how it was made.
"""

import contextlib
import copy
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import client, config, stream, utils
from kubernetes.client.exceptions import ApiException

from tfx_distribute.components.launchers.kubernetes import client as job_client
from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS, JobKind

Document = dict[str, Any]

ROLE = Path(__file__).parents[2] / "docs" / "trainer-role.yaml"

ACCOUNT = "pipeline-runner"  # as in a Kubeflow Pipelines without profiles
USER = 1000  # of the image
CLAIM = "training"
POD_SECONDS = 280.0
_FOLDER = "/var/tmp/tfx-distribute-tests"  # noqa: S108 (on a node of the cluster)


def connect() -> client.ApiClient:
    """Returns a client that may do everything in the cluster that KUBECONFIG names.

    Raises:
      Exception: There is no cluster.
    """
    # Not the default client: that is the one of the code under test.
    configuration = client.Configuration()
    config.load_kube_config(client_configuration=configuration)
    # A webhook that does not answer, such as Kueue's while it starts again, is a 500.
    configuration.retries = urllib3.Retry(
        8, backoff_factor=0.5, status_forcelist=[500], allowed_methods=None, raise_on_status=False
    )
    admin = job_client.api_client(configuration)
    client.VersionApi(admin).get_code(_request_timeout=5)
    return admin


@dataclass(frozen=True)
class Namespace:
    """A namespace with a service account that may do what our role allows.

    Attributes:
      admin: A client that may do everything.
      name: Its name.
      image: An image with this package and the digits' module.
      kubeconfig: Access as the service account, which may do what a step may do.
    """

    admin: client.ApiClient
    name: str
    image: str
    kubeconfig: Path

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.admin)

    @property
    def custom(self) -> client.CustomObjectsApi:
        return client.CustomObjectsApi(self.admin)

    def apply(self, document: Mapping[str, Any]) -> None:
        """Creates an object."""
        utils.create_from_dict(self.admin, dict(document), namespace=self.name)

    def pod(self, name: str) -> client.V1Pod:
        return self.core.read_namespaced_pod(name, self.name)

    def pods(self, **labels: str) -> list[client.V1Pod]:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return list(self.core.list_namespaced_pod(self.name, label_selector=selector).items)

    def log(self, pod: str) -> str:
        """Returns what a pod printed; an empty text if it never started."""
        try:
            answer = self.core.read_namespaced_pod_log(pod, self.name, _preload_content=False)
        except ApiException:
            return ""
        return str(answer.data.decode(errors="replace"))

    def get(self, pod: str, port: int, path: str) -> str:
        """Returns what a pod answers to the API server; empty if it does not yet."""
        # Once: the shared client tries again for minutes.
        configuration = copy.copy(self.admin.configuration)
        configuration.retries = False
        core = client.CoreV1Api(job_client.api_client(configuration))
        try:
            return str(core.connect_get_namespaced_pod_proxy_with_path(f"{pod}:{port}", self.name, path))
        except (ApiException, urllib3.exceptions.HTTPError):
            return ""

    def jobs(self, kind: JobKind) -> list[Document]:
        answer = self.custom.list_namespaced_custom_object(kind.group, kind.version, self.name, kind.plural)
        return list(answer["items"])

    def delete_job(self, kind: JobKind, name: str) -> None:
        with contextlib.suppress(ApiException):  # it may be gone by now
            self.custom.delete_namespaced_custom_object(kind.group, kind.version, self.name, kind.plural, name)

    def delete_jobs(self, kind: JobKind) -> None:
        with contextlib.suppress(ApiException):  # the cluster may have no such kind
            self.custom.delete_collection_namespaced_custom_object(kind.group, kind.version, self.name, kind.plural)

    def execute(self, pod: str, words: list[str]) -> str:
        """Runs a command in a pod that runs; returns its output."""
        # Not the shared client: `stream` replaces its way to send requests.
        core = client.CoreV1Api(client.ApiClient(self.admin.configuration))
        request = core.connect_get_namespaced_pod_exec
        return str(stream.stream(request, pod, self.name, command=words, stdout=True, stderr=True))

    def run(self, name: str, words: list[str], seconds: float = POD_SECONDS) -> str:
        """Runs a command in a pod with the claim at /shared; returns its output."""
        self.apply(make_pod(name, self.image, words, claims={CLAIM: "/shared"}))
        try:
            phase = self.wait_for_end(name, seconds)
            assert phase == "Succeeded", f"{phase}: {self.log(name)}"
            return self.log(name)
        finally:
            self.delete_pod(name)

    def wait_for_end(self, name: str, seconds: float = POD_SECONDS) -> str:
        """Returns the last phase of a pod; `Deleted` if somebody deleted it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                pod = self.pod(name)
            except ApiException as error:
                if error.status == 404:
                    return "Deleted"
                raise
            if pod.status.phase in ("Succeeded", "Failed"):
                return "Deleted" if pod.metadata.deletion_timestamp else str(pod.status.phase)
            time.sleep(0.5)
        raise AssertionError(f"pod {name} has not ended after {seconds} s: {self.log(name)[-3000:]}")

    def delete_pod(self, name: str, grace_seconds: int = 0) -> None:
        with contextlib.suppress(ApiException):
            self.core.delete_namespaced_pod(name, self.name, grace_period_seconds=grace_seconds)


def make_pod(
    name: str,
    image: str,
    words: list[str],
    claims: Mapping[str, str] | None = None,
    user: int = USER,
    **spec: Any,
) -> Document:
    """Returns a pod that a `restricted` namespace accepts."""
    names = {claim: f"claim-{number}" for number, claim in enumerate(claims or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "securityContext": {
                "runAsUser": user,
                "runAsGroup": user,
                "runAsNonRoot": user != 0,
                "fsGroup": user,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": words,
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [
                        {"name": names[claim], "mountPath": folder} for claim, folder in (claims or {}).items()
                    ],
                }
            ],
            "volumes": [{"name": names[claim], "persistentVolumeClaim": {"claimName": claim}} for claim in claims or {}],
            **spec,
        },
    }


@contextlib.contextmanager
def namespace(
    admin: client.ApiClient, image: str, folder: Path, storage_class: str = "", labels: Mapping[str, str] | None = None
) -> Iterator[Namespace]:
    """Creates a namespace, the role of docs/trainer-role.yaml, and a volume.

    Deletes everything at the end.

    Args:
      admin: A client that may do everything.
      image: Image for `Namespace.image`.
      folder: Folder for its kubeconfig.
      storage_class: Storage class with ReadWriteMany; by default, the volume is a
        folder of the node, which suits clusters with one node.
      labels: Labels of the namespace.
    """
    core = client.CoreV1Api(admin)
    name = f"tfx-distribute-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": name, "labels": dict(labels or {})}})
    created = Namespace(admin, name, image, folder / f"{name}.kubeconfig")
    try:
        core.create_namespaced_service_account(name, {"metadata": {"name": ACCOUNT}})
        role = yaml.safe_load(ROLE.read_text())
        created.apply(role)
        binding = {
            "apiVersion": role["apiVersion"],
            "kind": "RoleBinding",
            "metadata": role["metadata"],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": name}],
        }
        created.apply(binding)
        token = core.create_namespaced_service_account_token(ACCOUNT, name, {"spec": {"expirationSeconds": 7200}})
        write_kubeconfig(created, token.status.token)
        with _volume(created, storage_class):
            yield created
    finally:
        core.delete_namespace(name)


def write_kubeconfig(created: Namespace, token: str) -> None:
    """Writes access to the cluster with a service account's token."""
    admin = created.admin.configuration
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": admin.host, "certificate-authority": admin.ssl_ca_cert}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": created.name}}],
        "current-context": "c",
    }
    created.kubeconfig.write_text(yaml.safe_dump(document))


@contextlib.contextmanager
def _volume(created: Namespace, storage_class: str) -> Iterator[None]:
    """Provides the claim, which the image's user may write to."""
    core, name = created.core, created.name
    claim: Document = {
        "metadata": {"name": CLAIM},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": storage_class,
        },
    }
    # Each of the calls is made, also if one of them fails.
    with contextlib.ExitStack() as cleanup:
        if not storage_class:
            core.create_persistent_volume(
                {
                    "metadata": {"name": name},
                    "spec": {
                        "capacity": {"storage": "1Gi"},
                        "accessModes": ["ReadWriteMany"],
                        "persistentVolumeReclaimPolicy": "Retain",
                        "storageClassName": "",
                        "claimRef": {"namespace": name, "name": CLAIM},
                        "hostPath": {"path": f"{_FOLDER}/{name}", "type": "DirectoryOrCreate"},
                    },
                }
            )
            cleanup.callback(core.delete_persistent_volume, name)
            remove = f"rm -rf {_FOLDER}/{name} && rmdir --ignore-fail-on-non-empty {_FOLDER}"
            cleanup.callback(_as_root, created, remove, str(Path(_FOLDER).parent))
            claim["spec"]["volumeName"] = name
        core.create_namespaced_persistent_volume_claim(name, claim)
        cleanup.callback(core.delete_collection_namespaced_pod, name, grace_period_seconds=0)
        # First, because new pods would make the folder again.
        for kind in JOB_KINDS.values():
            cleanup.callback(created.delete_jobs, kind)
        if not storage_class:  # Kubernetes does not apply an fsGroup to folders of the node
            folder = f"{_FOLDER}/{name}"
            _as_root(created, f"chown {USER}:{USER} {folder} && chmod 2770 {folder}", folder)
        yield


def _as_root(created: Namespace, script: str, folder: str) -> None:
    """Runs a script in a folder of the node, in a namespace whose pods may do so."""
    name = f"as-root-{uuid.uuid4().hex[:8]}"
    pod = make_pod(name, created.image, ["sh", "-c", script], user=0)
    pod["spec"]["volumes"] = [{"name": "folder", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "folder", "mountPath": folder}]
    pod["spec"]["containers"][0].pop("securityContext")
    pod["spec"]["securityContext"] = {"runAsUser": 0}
    created.core.create_namespaced_pod("default", pod)
    outside = replace(created, name="default")
    try:
        assert outside.wait_for_end(name, 120) == "Succeeded", outside.log(name)
    finally:
        outside.delete_pod(name)


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Returns the first result that is true."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"still not true after {seconds} s"
        time.sleep(0.3)
    return result
