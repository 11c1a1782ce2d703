"""Injects faults into the pods of a training on a real cluster."""

from dataclasses import dataclass

from kubernetes import client
from real_cluster import Document, Namespace, wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import JobKind
from tfx_distribute.trainer_module.reporting import history

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


def _owner(job: Document) -> str:
    return next((str(owner["name"]) for owner in job["metadata"].get("ownerReferences", ())), "")
