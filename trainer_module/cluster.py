"""Who is in a training cluster: roles and addresses, to TF_CONFIG and back.

TF_CONFIG is TensorFlow's own description of a cluster, the same on one machine, under Kubernetes (written by the
Training Operator) and on Vertex AI: `{"cluster": {role: [host:port]}, "task": {"type": role, "index": i}}`.
Source: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tfx_distribute.trainer_module import compatibility
from tfx_distribute.trainer_module.errors import ConfigurationError

TF_CONFIG = "TF_CONFIG"

CHIEF = "chief"
WORKER = "worker"


@dataclass(frozen=True, order=True)
class Task:
    """One process of a cluster.

    Attributes:
      role: `chief` or `worker`.
      index: Number among the tasks of its role, from 0.
    """

    role: str
    index: int

    def __str__(self) -> str:
        return self.role if self.role == CHIEF else f"{self.role} {self.index}"

    @property
    def file_name(self) -> str:
        """The task's name where a file is called after it, such as `worker-0`."""
        return f"{self.role}-{self.index}"


CHIEF_TASK = Task(CHIEF, 0)


def replicas_of_roles(strategy: str, num_workers: int) -> dict[str, int]:
    """How many processes of each role a strategy needs, in the order in which they are started.

    The chief is one of the `num_workers` training processes: it trains like the others and also writes the model.

    Args:
      strategy: Name of a strategy.
      num_workers: Training processes, the chief included.

    Returns:
      Role to number of processes; only roles with at least one.
    """
    if not compatibility.strategy_named(strategy).multi_worker or num_workers == 1:
        return {CHIEF: 1}
    return {CHIEF: 1, WORKER: num_workers - 1}


@dataclass(frozen=True)
class Cluster:
    """The addresses of all processes that train together.

    Attributes:
      addresses: Role to `host:port` of each of its tasks.
    """

    addresses: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(roles: Mapping[str, int], addresses: Iterable[str]) -> "Cluster":
        """Gives addresses, in their order, to so many tasks of each role."""
        remaining = iter(addresses)
        return Cluster({role: tuple(itertools.islice(remaining, count)) for role, count in roles.items()})

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, the chief first."""
        return tuple(Task(role, index) for role, hosts in self.addresses.items() for index in range(len(hosts)))

    def tf_config(self, task: Task) -> str:
        """The value of TF_CONFIG for one of the cluster's tasks."""
        return json.dumps(
            {
                "cluster": {role: list(hosts) for role, hosts in self.addresses.items()},
                "task": {"type": task.role, "index": task.index},
            }
        )


def task_from_environment(environ: Mapping[str, str]) -> Task:
    """The task that this process is, from its TF_CONFIG; without one, the chief of a cluster of one.

    A cluster without a chief is led by worker 0, as `tf.distribute` has it.

    Raises:
      ConfigurationError: TF_CONFIG is there but not as TensorFlow writes it.
    """
    text = environ.get(TF_CONFIG)
    if not text:
        return CHIEF_TASK
    try:
        document = json.loads(text)
        roles = document.get("cluster") or {}
        task = Task(str(document["task"]["type"]), int(document["task"]["index"])) if roles else CHIEF_TASK
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"TF_CONFIG of this process is not valid: {text!r} ({error})") from error
    if CHIEF not in roles and task == Task(WORKER, 0):
        return CHIEF_TASK
    return task
