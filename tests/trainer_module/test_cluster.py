import json

import pytest

from tfx_distribute.trainer_module.cluster import CHIEF_TASK, Cluster, Task, replicas_of_roles, task_from_environment
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.mark.parametrize(
    ("strategy", "num_workers", "roles"),
    [
        ("default", 1, {"chief": 1}),
        ("mirrored", 1, {"chief": 1}),
        ("multi_worker_mirrored", 1, {"chief": 1}),
        ("multi_worker_mirrored", 4, {"chief": 1, "worker": 3}),
    ],
)
def test_roles_of_each_strategy(strategy, num_workers, roles):
    assert replicas_of_roles(strategy, num_workers) == roles


def test_addresses_are_given_in_order():
    cluster = Cluster.of({"chief": 1, "worker": 2}, iter(["a:1", "b:1", "c:1", "d:1"]))
    assert cluster == Cluster({"chief": ("a:1",), "worker": ("b:1", "c:1")})


def test_tf_config_is_what_tensorflow_reads():
    cluster = Cluster({"chief": ("127.0.0.1:1",), "worker": ("127.0.0.1:2", "127.0.0.1:3")})
    assert cluster.tasks == (Task("chief", 0), Task("worker", 0), Task("worker", 1))
    assert json.loads(cluster.tf_config(Task("worker", 1))) == {
        "cluster": {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize(
    ("text", "task"),
    [
        (None, CHIEF_TASK),
        ("", CHIEF_TASK),
        ("{}", CHIEF_TASK),
        ('{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}', Task("worker", 0)),
        # Without a chief, worker 0 leads; Vertex AI writes the index as text.
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": "0"}}', CHIEF_TASK),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}', Task("worker", 1)),
    ],
)
def test_task_of_this_process(text, task):
    assert task_from_environment({} if text is None else {"TF_CONFIG": text}) == task


@pytest.mark.parametrize("text", ["{", "[]", '{"cluster": {"worker": ["a:1"]}}', '{"cluster": {"worker": []}, "task": 3}'])
def test_invalid_tf_config_is_named(text):
    with pytest.raises(ConfigurationError, match="TF_CONFIG"):
        task_from_environment({"TF_CONFIG": text})
