"""Who is in a training cluster: roles and addresses, to TF_CONFIG and back.

TF_CONFIG is TensorFlow's own description of a cluster, the same on one machine, under Kubernetes (written by the
Training Operator) and on Vertex AI: `{"cluster": {role: [host:port]}, "task": {"type": role, "index": i}}`.
Source: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import Distribution

TF_CONFIG = "TF_CONFIG"
TRY = "TFX_DISTRIBUTE_TRY"  # environment variable: what a launcher calls this try; the same for all processes of it

CHIEF = "chief"
WORKER = "worker"
PARAMETER_SERVER = "ps"  # what TensorFlow calls it in TF_CONFIG
EVALUATOR = "evaluator"


@dataclass(frozen=True, order=True)
class ClusterTask:
    """One process of a cluster.

    Attributes:
      role: `chief`, `worker`, `ps` or `evaluator`.
      index: Number among the tasks of its role, from 0.
    """

    role: str
    index: int

    def __str__(self) -> str:
        return self.role if self.role in (CHIEF, EVALUATOR) else f"{self.role} {self.index}"

    @property
    def file_name(self) -> str:
        """The task's name where a file is called after it, such as `worker-0`."""
        return f"{self.role}-{self.index}"


CHIEF_TASK = ClusterTask(CHIEF, 0)


def replicas_of_roles(distribution: Distribution) -> dict[str, int]:
    """How many processes of each role a distribution needs, in the order in which they are started.

    The chief is one of the `num_workers` training processes: it trains like the others and also writes the model. With
    parameter servers it coordinates instead, and all workers are beside it.

    Args:
      distribution: How the work is spread, with the name of a strategy.

    Returns:
      Role to number of processes; only roles with at least one.
    """
    row = distribution.info
    workers = 0
    if row.multi_worker:
        workers = distribution.num_workers - (0 if row.parameter_servers else 1)
    roles = {
        CHIEF: 1,
        WORKER: workers,
        PARAMETER_SERVER: strategy_table.num_parameter_servers(distribution),
        EVALUATOR: distribution.num_evaluators,
    }
    return {role: count for role, count in roles.items() if count}


def is_server(distribution: Distribution, task: ClusterTask) -> bool:
    """Whether a task only does what the coordinator tells it, and goes on for as long as that one does."""
    row = distribution.info
    return row.parameter_servers and task.role in (WORKER, PARAMETER_SERVER)


def uses_accelerators(distribution: Distribution, task: ClusterTask) -> bool:
    """Whether a task computes on GPUs where there are any: a coordinator and its parameter servers do not."""
    row = distribution.info
    return not (row.parameter_servers and task.role in (CHIEF, PARAMETER_SERVER))


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
    def tasks(self) -> tuple[ClusterTask, ...]:
        """All tasks, the chief first."""
        return tuple(ClusterTask(role, index) for role, hosts in self.addresses.items() for index in range(len(hosts)))

    def tf_config(self, task: ClusterTask) -> str:
        """The value of TF_CONFIG for one of the cluster's tasks."""
        return json.dumps(
            {
                # As `tf.distribute` has it, the evaluator is no part of the cluster.
                "cluster": {role: list(hosts) for role, hosts in self.addresses.items() if role != EVALUATOR},
                "task": {"type": task.role, "index": task.index},
            }
        )


def tf_config_for(distribution: Distribution, environ: Mapping[str, str]) -> str | None:
    """The TF_CONFIG of this process as TensorFlow understands it; None where it trains alone.

    The Training Operator lists the evaluator among the cluster's tasks, and all others then wait for it without end; Vertex
    AI lists reduction servers, and a job of one process as a cluster.
    Source: https://github.com/tensorflow/tensorflow/issues/46169
    """
    text = environ.get(TF_CONFIG)
    roles = replicas_of_roles(distribution)
    if not text or sum(roles.values()) == 1:
        return None
    document = json.loads(text)
    # A cluster without a chief is led by worker 0.
    known = [role for role in (*roles, WORKER) if role != EVALUATOR]
    document["cluster"] = {role: hosts for role, hosts in document.get("cluster", {}).items() if role in known}
    return json.dumps(document)


def task_from_environment(environ: Mapping[str, str]) -> ClusterTask:
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
        task = ClusterTask(str(document["task"]["type"]), int(document["task"]["index"])) if roles else CHIEF_TASK
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"TF_CONFIG of this process is not valid: {text!r} ({error})") from error
    if CHIEF not in roles and task == ClusterTask(WORKER, 0):
        return CHIEF_TASK
    return task
