import json

import pytest

from tfx_distribute.trainer_module.job.cluster import (
    CHIEF_TASK,
    Cluster,
    ClusterTask,
    is_server,
    replicas_of_roles,
    task_from_environment,
    tf_config_for,
    uses_accelerators,
)
from tfx_distribute.trainer_module.job.training_job import Distribution


@pytest.mark.parametrize(
    ("distribution", "roles"),
    [
        (Distribution("default"), {"chief": 1}),
        (Distribution("mirrored"), {"chief": 1}),
        (Distribution("multi_worker_mirrored"), {"chief": 1}),
        (Distribution("multi_worker_mirrored", num_workers=4), {"chief": 1, "worker": 3}),
        (Distribution("parameter_server"), {"chief": 1, "worker": 1, "ps": 1}),
        (Distribution("parameter_server", num_workers=3, num_parameter_servers=2), {"chief": 1, "worker": 3, "ps": 2}),
        (Distribution("model_parallel", mesh="2x2"), {"chief": 1}),
    ],
)
def test_roles_of_each_strategy(distribution, roles):
    assert replicas_of_roles(distribution) == roles


def test_who_serves_and_who_computes():
    """A coordinator does not compute, and its servers run until it ends."""
    servers = Distribution("parameter_server", num_workers=1)
    tasks = [ClusterTask("chief", 0), ClusterTask("worker", 0), ClusterTask("ps", 0)]
    assert [is_server(servers, task) for task in tasks] == [False, True, True]
    assert [uses_accelerators(servers, task) for task in tasks] == [False, True, False]
    workers = Distribution("multi_worker_mirrored", num_workers=2)
    assert [is_server(workers, task) for task in tasks[:2]] == [False, False]
    assert [uses_accelerators(workers, task) for task in tasks[:2]] == [True, True]


def test_only_those_that_train_are_listed():
    """Vertex AI lists reduction servers, and a single process as a cluster."""
    listed = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    environ = {"TF_CONFIG": json.dumps({"cluster": listed, "task": {"type": "worker", "index": 0}})}
    understood = tf_config_for(Distribution("multi_worker_mirrored", num_workers=2), environ)
    assert json.loads(understood or "") == {
        "cluster": {"chief": ["a:1"], "worker": ["b:1"]},
        "task": {"type": "worker", "index": 0},
    }
    servers = tf_config_for(Distribution("parameter_server", num_workers=1, num_parameter_servers=1), environ)
    assert json.loads(servers or "")["cluster"] == listed
    assert tf_config_for(Distribution("mirrored"), environ) is None


def test_addresses_are_given_in_order():
    cluster = Cluster.of({"chief": 1, "worker": 2}, iter(["a:1", "b:1", "c:1", "d:1"]))
    assert cluster == Cluster({"chief": ("a:1",), "worker": ("b:1", "c:1")})


def test_tf_config_is_what_tensorflow_reads():
    cluster = Cluster({"chief": ("127.0.0.1:1",), "worker": ("127.0.0.1:2", "127.0.0.1:3")})
    assert cluster.tasks == (ClusterTask("chief", 0), ClusterTask("worker", 0), ClusterTask("worker", 1))
    assert json.loads(cluster.tf_config(ClusterTask("worker", 1))) == {
        "cluster": {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize(
    ("text", "task"),
    [
        (None, CHIEF_TASK),
        ("", CHIEF_TASK),
        ("{}", CHIEF_TASK),
        (
            '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
            ClusterTask("worker", 0),
        ),
        # Without a chief, worker 0 leads; Vertex AI writes the index as text.
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": "0"}}', CHIEF_TASK),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}', ClusterTask("worker", 1)),
    ],
)
def test_task_of_this_process(text, task):
    assert task_from_environment({} if text is None else {"TF_CONFIG": text}) == task
