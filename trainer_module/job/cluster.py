"""Describes a training cluster, and converts it from and to TF_CONFIG.

TF_CONFIG is TensorFlow's own description of a cluster. It is the same on one machine,
under Kubernetes (written by the Training Operator) and on Vertex AI:
`{"cluster": {role: [host:port]}, "task": {"type": role, "index": i}}`. Source:
https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import Distribution

TF_CONFIG = "TF_CONFIG"
# Environment variable: number of GPUs that this process's container requests.
REQUESTED_GPUS = "TFX_DISTRIBUTE_REQUESTED_GPUS"
# Environment variable: path or address of the file that a process reports its failure
# in; if unset, it reports none.
ERROR_FILE_VARIABLE = "TFX_DISTRIBUTE_ERROR"

CHIEF = "chief"
WORKER = "worker"
PARAMETER_SERVER = "ps"  # what TensorFlow calls it in TF_CONFIG


@dataclass(frozen=True, order=True)
class ClusterTask:
    """One process of a cluster.

    Attributes:
      role: `chief`, `worker` or `ps`.
      index: Number of the task within its role, from 0.
    """

    role: str
    index: int

    def __str__(self) -> str:
        return self.role if self.role == CHIEF else f"{self.role} {self.index}"

    @property
    def file_name(self) -> str:
        """The task's name in names of files, such as `worker-0`."""
        return f"{self.role}-{self.index}"


CHIEF_TASK = ClusterTask(CHIEF, 0)


def replicas_of_roles(distribution: Distribution) -> dict[str, int]:
    """Returns how many processes of each role a distribution needs, in order of start.

    The chief is one of the `num_workers` training processes: it trains like the others
    and also writes the model. With parameter servers it only coordinates, and the
    workers are additional processes. Roles without a process are left out. The strategy
    must be a real one, not `auto`.
    """
    roles = {
        CHIEF: 1,
        WORKER: strategy_table.reading_processes(distribution) - (0 if distribution.info.parameter_servers else 1),
        PARAMETER_SERVER: strategy_table.num_parameter_servers(distribution),
    }
    return {role: count for role, count in roles.items() if count}


def tasks_of(distribution: Distribution) -> list[ClusterTask]:
    """Returns all tasks of a training, the chief first; see `replicas_of_roles`."""
    return [ClusterTask(role, index) for role, count in replicas_of_roles(distribution).items() for index in range(count)]


def is_server(distribution: Distribution, task: ClusterTask) -> bool:
    """Returns True if a task only serves a coordinator, as long as that one runs."""
    return distribution.info.parameter_servers and task.role in (WORKER, PARAMETER_SERVER)


def uses_accelerators(distribution: Distribution, task: ClusterTask) -> bool:
    """Returns True if a task computes on GPUs if there are any.

    A coordinator and its parameter servers do not.
    """
    return not (distribution.info.parameter_servers and task.role in (CHIEF, PARAMETER_SERVER))


@dataclass(frozen=True)
class Cluster:
    """The addresses of all processes that train together."""

    addresses: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(roles: Mapping[str, int], addresses: Iterable[str]) -> "Cluster":
        """Makes a cluster by assigning addresses, in order, to each role's tasks."""
        remaining = iter(addresses)
        return Cluster({role: tuple(itertools.islice(remaining, count)) for role, count in roles.items()})

    @property
    def tasks(self) -> tuple[ClusterTask, ...]:
        """All tasks, the chief first."""
        return tuple(ClusterTask(role, index) for role, hosts in self.addresses.items() for index in range(len(hosts)))

    def tf_config(self, task: ClusterTask) -> str:
        """Returns the value of TF_CONFIG for one of the cluster's tasks."""
        return json.dumps(
            {
                "cluster": {role: list(hosts) for role, hosts in self.addresses.items()},
                "task": {"type": task.role, "index": task.index},
            }
        )


def tf_config_for(distribution: Distribution, environ: Mapping[str, str]) -> str | None:
    """Returns this process's TF_CONFIG in TensorFlow's form; None if it trains alone.

    Vertex AI lists reduction servers, and describes a job of one process as a cluster.
    """
    text = environ.get(TF_CONFIG)
    roles = replicas_of_roles(distribution)
    if not text or sum(roles.values()) == 1:
        return None
    document = json.loads(text)
    # In a cluster without a chief, worker 0 is the chief.
    document["cluster"] = {role: hosts for role, hosts in document.get("cluster", {}).items() if role in (*roles, WORKER)}
    return json.dumps(document)


def task_from_environment(environ: Mapping[str, str]) -> ClusterTask:
    """Returns this process's task from its TF_CONFIG; the chief if there is none.

    In a cluster without a chief, worker 0 is the chief, as for `tf.distribute`.
    """
    text = environ.get(TF_CONFIG)
    if not text:
        return CHIEF_TASK
    document = json.loads(text)
    roles = document.get("cluster") or {}
    task = ClusterTask(str(document["task"]["type"]), int(document["task"]["index"])) if roles else CHIEF_TASK
    if CHIEF not in roles and task == ClusterTask(WORKER, 0):
        return CHIEF_TASK
    return task
