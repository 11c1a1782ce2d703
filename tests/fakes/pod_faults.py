"""Injects faults into the pods of a training on a real cluster.

What the API server does not do is done by a pod on the node, as root and with the
node's own processes in sight.
"""

import uuid
from dataclasses import dataclass, replace

from kubernetes import client, stream
from real_cluster import Document, Namespace, make_pod, wait_until

from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind

ON_NODE = """
import glob, os, signal, subprocess, sys, time

how, uid, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
pids = []
for folder in glob.glob("/proc/[0-9]*"):
    try:
        cgroups, command = open(folder + "/cgroup").read(), open(folder + "/cmdline").read()
    except OSError:  # it has ended
        continue
    # With systemd's cgroups, uids have underscores.
    if (uid in cgroups or uid.replace("-", "_") in cgroups) and "tfx_distribute" in command:
        pids.append(int(os.path.basename(folder)))
assert pids, "the pod has no process of ours"
if how == "stop":
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                print(pid, "has ended")
        time.sleep(seconds if number == signal.SIGSTOP else 0)
else:
    network = os.open(f"/proc/{pids[0]}/ns/net", os.O_RDONLY)  # which keeps it until the rules are gone
    for change in ("-I", "-D"):
        for direction in (("INPUT", "!", "-i", "lo"), ("OUTPUT", "!", "-o", "lo")):
            words = ["nsenter", "--mount=/proc/1/ns/mnt", f"--net=/proc/self/fd/{network}", "iptables", "-w", change]
            subprocess.run([*words, *direction, "-j", "DROP"], check=True, pass_fds=[network])
        time.sleep(seconds if change == "-I" else 0)
"""
# The kernel takes the process with the highest score, which would be this one.
USE_ALL_MEMORY = """
with open("/proc/1/oom_score_adj", "w") as file:
    file.write("1000")
blocks = []
while True:
    blocks.append(bytearray(2**26))
"""


@dataclass(frozen=True)
class RunningTraining:
    """A training that a pipeline step follows.

    Attributes:
      namespace: Its namespace.
      kind: The kind of its job.
      step: Name of the step's pod, which owns the job.
    """

    namespace: Namespace
    kind: JobKind
    step: str

    def jobs(self) -> list[Document]:
        """Returns the jobs that the step's pod owns: at most one."""
        return [job for job in self.namespace.jobs(self.kind) if _owner(job) == self.step]

    def pods(self, role: str | None = None) -> list[client.V1Pod]:
        """Returns the pods of the training, or of one of its roles."""
        names = [job["metadata"]["name"] for job in self.jobs()]
        pods = [pod for name in names for pod in self.namespace.pods(**{self.kind.name_label: name})]
        return [pod for pod in pods if role in (None, self.kind.task_of(pod).role)]

    def running(self, role: str) -> client.V1Pod:
        """Returns a pod of a role once it runs."""
        return wait_until(
            lambda: next(
                (pod for pod in self.pods(role) if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp),
                None,
            )
        )


def evict(namespace: Namespace, pod: str) -> None:
    """Evicts a pod through the API, as draining its node does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    namespace.core.create_namespaced_pod_eviction(pod, namespace.name, eviction)


def exhaust_memory(namespace: Namespace, pod: str) -> None:
    """Uses memory in a pod until the kernel kills its main process for it.

    The pod has a memory limit.
    """
    stream.stream(
        # Not the shared client: `stream` replaces its way to send requests.
        client.CoreV1Api(client.ApiClient(namespace.admin.configuration)).connect_get_namespaced_pod_exec,
        pod,
        namespace.name,
        command=["python", "-c", USE_ALL_MEMORY],
        stdout=True,
        stderr=True,
    )


def stop(namespace: Namespace, pod: client.V1Pod, seconds: float) -> None:
    """Stops all processes of a pod with SIGSTOP, and continues them afterwards."""
    _on_node(namespace, ["stop", pod.metadata.uid, str(seconds)], seconds)


def cut_network(namespace: Namespace, pod: client.V1Pod, seconds: float) -> None:
    """Drops everything that a pod sends and receives, for some time."""
    _on_node(namespace, ["cut", pod.metadata.uid, str(seconds)], seconds)


def delete_controller(namespace: Namespace, kind: JobKind) -> None:
    """Deletes the pods of the controller; their deployment makes new ones."""
    core, where = namespace.core, kind.controller_namespace
    labels = "control-plane in (controller-manager, kubeflow-training-operator)"
    for pod in core.list_namespaced_pod(where, label_selector=labels).items:
        core.delete_namespaced_pod(pod.metadata.name, where)


def _on_node(namespace: Namespace, arguments: list[str], seconds: float) -> None:
    name = f"strike-{uuid.uuid4().hex[:8]}"
    pod = make_pod(name, namespace.image, ["python", "-c", ON_NODE, *arguments], user=0, hostPID=True)
    pod["spec"]["securityContext"] = {"runAsUser": 0}
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    namespace.core.create_namespaced_pod("default", pod)
    outside = replace(namespace, name="default")
    try:
        assert outside.wait_for_end(name, seconds + 60) == "Succeeded", outside.log(name)
    finally:
        outside.delete_pod(name)


def _owner(job: Document) -> str:
    return next((str(owner["name"]) for owner in job["metadata"].get("ownerReferences", ())), "")
