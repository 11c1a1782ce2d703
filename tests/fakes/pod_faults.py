"""Injects faults into the pods of a training on a real cluster.

Faults that the API server cannot inject are injected by a pod on the node, as root and
with the node's own processes in sight.
"""

import uuid
from dataclasses import dataclass, replace

from kubernetes import client
from real_cluster import Document, Namespace, make_pod, wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import JobKind
from tfx_distribute.trainer_module.reporting import history

ON_NODE = """
import ctypes, errno, fcntl, glob, os, signal, socket, struct, sys, time

GET_FLAGS, SET_FLAGS, ADD_ROUTE, IS_UP = 0x8913, 0x8914, 0x890B, 1  # linux/sockios.h, linux/if.h


def find_processes(uid):
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            cgroups, command = open(folder + "/cgroup").read(), open(folder + "/cmdline").read()
        except OSError:  # it has ended
            continue
        # With systemd's cgroups, uids have underscores.
        if (uid in cgroups or uid.replace("-", "_") in cgroups) and "tfx_distribute" in command:
            yield int(os.path.basename(folder))


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            print(pid, "has ended")


def set_up(network, device, is_up):
    name = device.encode()
    _, flags = struct.unpack("16sH22x", fcntl.ioctl(network, GET_FLAGS, struct.pack("16sH22x", name, 0)))
    fcntl.ioctl(network, SET_FLAGS, struct.pack("16sH22x", name, flags | IS_UP if is_up else flags & ~IS_UP))


def add_route(network, device, destination, gateway, flags, mask):
    addresses = [struct.pack("=H2xI8x", socket.AF_INET, int(text, 16)) for text in (destination, gateway, mask)]
    name = ctypes.create_string_buffer(device.encode())
    route = struct.pack("@L16s16s16sHhLBB3hhPLLH", 0, *addresses, int(flags, 16), *[0] * 8, ctypes.addressof(name), 0, 0, 0)
    try:
        fcntl.ioctl(network, ADD_ROUTE, route.ljust(120, bytes(1)))
    except FileExistsError:
        pass


how, uid, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
pids = list(find_processes(uid))
assert pids, "the pod has no process of ours"
if how == "stop":
    send(pids, signal.SIGSTOP)
    time.sleep(seconds)
    send(pids, signal.SIGCONT)
else:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(os.open(f"/proc/{pids[0]}/ns/net", os.O_RDONLY), 0):
        raise OSError(ctypes.get_errno(), "cannot enter the pod's network")
    with open("/proc/self/net/route") as file:
        routes = [line.split() for line in file][1:]
    network = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for device in {route[0] for route in routes}:
        set_up(network, device, False)
    time.sleep(seconds)
    for device in {route[0] for route in routes}:
        try:
            set_up(network, device, True)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            print("the pod has ended, and its network with it")
            sys.exit()
    # They are gone with the device. Gateways come last: they have to be within reach.
    for device, destination, gateway, flags, _, _, _, mask, *_ in sorted(routes, key=lambda route: int(route[2], 16) != 0):
        add_route(network, device, destination, gateway, flags, mask)
"""
# The kernel takes the process with the highest score, to which its memory adds: so none
# of these may use much.
USE_ALL_MEMORY = """
import os, time
with open("/proc/1/oom_score_adj", "w") as file:
    file.write("1000")
while True:
    if os.fork() == 0:
        block = b"1" * 2**26
        time.sleep(60)
        os._exit(0)
    time.sleep(0.1)
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


def trained_steps(log: str) -> int:
    """Returns how many steps a process has trained since it started.

    Args:
      log: What its pod has printed, with one report of progress per line.
    """
    steps = [report.step for report in history.parse(log.splitlines()) if report.phase == "train"]
    return steps[-1] - steps[0] if steps else 0


def evict(namespace: Namespace, pod: str) -> None:
    """Evicts a pod through the API, as draining its node does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    namespace.core.create_namespaced_pod_eviction(pod, namespace.name, eviction)


def exhaust_memory(namespace: Namespace, pod: str) -> None:
    """Uses memory in a pod until the kernel kills its main process for it.

    The pod has a memory limit.
    """
    namespace.execute(pod, ["python", "-c", USE_ALL_MEMORY])


def stop(namespace: Namespace, pod: client.V1Pod, seconds: float) -> None:
    """Stops all processes of a pod with SIGSTOP, and continues them afterwards."""
    _on_node(namespace, ["stop", pod.metadata.uid, str(seconds)], seconds)


def cut_network(namespace: Namespace, pod: client.V1Pod, seconds: float) -> None:
    """Takes the network from a pod for some time, as if its cable were pulled."""
    _on_node(namespace, ["cut", pod.metadata.uid, str(seconds)], seconds)


def delete_controller(namespace: Namespace) -> None:
    """Deletes the pods of JobSet's controller; their deployment makes new ones."""
    core, where = namespace.core, "jobset-system"
    for pod in core.list_namespaced_pod(where, label_selector="control-plane=controller-manager").items:
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
