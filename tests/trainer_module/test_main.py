"""Tests a training process as a container runs it, with a job and a TF_CONFIG.

Several that train together are in tests/trainer_module/liveness/test_cluster_peers.py.
"""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.job.cluster import Cluster
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions, TrainingResult

pytestmark = pytest.mark.e2e

PROGRAM = ("-m", "tfx_distribute.trainer_module", "--job")


def start(job_file, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *PROGRAM, job_file],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def end(forked_trainings, tmp_path):
    """Returns what runs a forked process, and returns its exit code and output."""

    def run(*arguments: str, **environment: str) -> tuple[int, str]:
        with (tmp_path / "log").open("wb") as log:
            process = forked_trainings.start(arguments, {**os.environ, **environment}, tmp_path, log)
        try:
            code = process.wait(120)
        finally:
            process.kill()
        return code, (tmp_path / "log").read_text()

    return run


def write_job(cluster, **changes) -> str:
    file = cluster.folder / "job.json"
    file.write_text(replace(cluster.job, **changes).to_json())
    return str(file)


def test_a_server_whose_chief_is_gone_knows_whether_it_was_done(cluster, end):
    """Its exit code tells a remote launcher whether to try again."""
    job = write_job(cluster, distribution=Distribution("parameter_server"))
    code = (
        "import sys; from tfx_distribute.trainer_module import process; "
        "from tfx_distribute.trainer_module.loop import coordinator_steps; "
        "coordinator_steps.serve = lambda task, distribution: None; sys.exit(process.main(sys.argv[1]))"
    )
    config = Cluster.of({"chief": 1, "worker": 1, "ps": 1}, ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"])
    words, environment = ("-c", code, job), {"TF_CONFIG": config.tf_config(config.tasks[-1])}
    code, output = end(*words, **environment)
    assert code == 138, output
    (cluster.folder / "result.json").write_text(TrainingResult(1, 1, 1, 1.0, {}).to_json())
    code, output = end(*words, **environment)
    assert code == 0, output


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="this machine has a GPU")
def test_a_process_that_was_given_gpus_ends_where_there_are_none(cluster, end):
    job = write_job(cluster, distribution=Distribution("parameter_server"))
    config = Cluster.of({"chief": 1, "worker": 1, "ps": 1}, ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"])
    worker = config.tasks[1]
    variables = {"TF_CONFIG": config.tf_config(worker)}
    code, output = end(*PROGRAM, job, TFX_DISTRIBUTE_REQUESTED_GPUS="2", **variables)
    assert code == 1, "no other try helps"
    assert f"accelerator: {worker} was given 2 GPUs, but TensorFlow sees only CPU:0, and " in output


def test_failure_is_an_exit_code_and_a_message(cluster, end):
    code, output = end(*PROGRAM, write_job(cluster, training_options=TrainingOptions(5000, epochs=1)))
    assert code == 1
    assert output.strip().splitlines()[-1].startswith("per_replica_batch_size: 5000 on 1 replicas")


def test_a_job_that_cannot_be_read(tmp_path):
    """As on a volume that the step does not share."""
    process = start(str(tmp_path / "job.json"))
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"--job: {tmp_path}/job.json cannot be read: No such file or directory; ")
    assert "on a volume that all pods share (ReadWriteMany)" in errors
