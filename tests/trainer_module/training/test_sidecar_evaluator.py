import json

import tensorflow as tf

from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.lifecycle.peer_loss import ChiefMonitor
from tfx_distribute.trainer_module.training.sidecar_evaluator import SidecarCheckpointWriter, wait_for_replicas


def test_evaluator_counts_the_replicas_that_the_chief_has(tmp_path, monkeypatch):
    """For example four, on two workers that use all GPUs (accelerator_count is 0)."""
    task = ClusterTask("evaluator", 0)
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}}))
    SidecarCheckpointWriter(tf.keras.Sequential([tf.keras.layers.Dense(1)]), str(tmp_path), is_chief=True, num_replicas=4)
    (folder,) = (tmp_path / "evaluator").iterdir()
    assert wait_for_replicas(str(folder), ChiefMonitor(task), task) == 4
