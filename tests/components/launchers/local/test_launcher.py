"""Tests how the local launcher handles failures, with real processes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from running import children, is_running, listening, training_processes, wait_until

from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.launchers.local.fork_client import LAST_LINES
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, TrainingOptions, UserModule

TWO_WORKERS = Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu")
LONG = TrainingOptions(32, train_steps=1_000_000)


def test_addresses_are_free_ports_on_loopback():
    cluster = local_launcher.local_cluster({"chief": 1, "worker": 3})
    hosts = [host for role in cluster.addresses.values() for host in role]
    assert [len(role) for role in cluster.addresses.values()] == [1, 3]
    assert all(host.startswith("127.0.0.1:") for host in hosts)
    assert len(set(hosts)) == 4


def assert_on_loopback(cluster, num_addresses):
    """Checks where the processes of a running training listen."""
    addresses = listening(children(cluster.server.pid))
    assert len(addresses) == num_addresses
    # 127.0.0.1, and the same mapped into IPv6.
    assert {address.partition(":")[0] for address in addresses} <= {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.e2e
def test_killed_worker_is_named_and_no_process_remains(cluster):
    """Until then, the processes listen on loopback only."""
    cluster.exporting()
    killed = []

    def kill_worker(task, progress):
        if progress.step > 0 and task.role == "worker" and not killed:
            assert_on_loopback(cluster, 2)
            killed.append(training_processes(cluster.server.pid)["worker-0"])
            os.kill(killed[0], signal.SIGKILL)

    began = time.monotonic()
    with pytest.raises(TrainingError, match=r"worker 0 failed \(killed by SIGKILL, as when memory runs out"):
        cluster.train(TWO_WORKERS, LONG, on_progress=kill_worker, fault_tolerance=FaultTolerance(max_restarts=0))
    assert time.monotonic() - began < 60
    assert children(cluster.server.pid) == []
    assert not cluster.model.exists()


LOST_AT_THE_END = """
import json, os, signal, time
from model import build_model
from tfx_distribute.trainer_module.loop.peers import Peers

barrier = Peers.barrier

def die_as_a_worker(peers):
    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
        while not os.path.exists(RESULT):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    barrier(peers)

Peers.barrier = die_as_a_worker
"""


@pytest.mark.e2e
def test_a_worker_that_is_lost_after_the_result_is_there_costs_nothing(cluster):
    exporting = cluster.exporting()
    result_file = f"RESULT = {exporting.job.outputs.result_file!r}\n"
    (cluster.folder / "lost_at_the_end.py").write_text(result_file + LOST_AT_THE_END)
    module = UserModule("lost_at_the_end.build_model", (str(cluster.folder), *cluster.job.module.search_path))
    result = exporting.train(TWO_WORKERS, TrainingOptions(64, train_steps=4), module=module)
    assert result.train_steps == 4
    assert (cluster.model / "saved_model.pb").is_file()
    assert not any("restart" in message for message in cluster.messages())


NOT_TENSORFLOW = """
import json, os, sys
with open(os.environ["SEEN"], "w") as file:
    json.dump([sys.orig_argv[1:2], dict(os.environ)], file)
os._exit(1)
"""


@pytest.mark.e2e
def test_process_on_a_tpu_imports_tensorflow_itself_with_its_driver(cluster, tmp_path, monkeypatch):
    """No other process may load it, which TensorFlow for TPUs does at import."""
    (tmp_path / "tensorflow.py").write_text(NOT_TENSORFLOW)
    seen = tmp_path / "seen.json"
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    environment = local_launcher._environment
    monkeypatch.setattr(local_launcher, "_environment", lambda *args: {**environment(*args), "SEEN": str(seen)})
    with pytest.raises(TrainingError, match="exit code 1"):
        cluster.train(Distribution("tpu"))
    options, variables = json.loads(seen.read_text())
    assert options == ["-c"], "a new program"
    assert "TPU_LOAD_LIBRARY" not in variables
    assert variables["TF_USE_LEGACY_KERAS"] == "1"


BREAKS = """
import json, os, sys
def build_model(context):
    print("the last words", file=sys.stderr)
    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker":
        raise ZeroDivisionError(f"worker's own mistake (TPU_LOAD_LIBRARY={os.environ['TPU_LOAD_LIBRARY']})")
    import time
    time.sleep(600)
"""


@pytest.mark.e2e
def test_error_in_one_process_ends_all_with_its_last_lines(cluster, tmp_path):
    (tmp_path / "own_breaks.py").write_text(BREAKS)
    with pytest.raises(TrainingError) as failure:
        cluster.train(TWO_WORKERS, module=UserModule("own_breaks.build_model", (str(tmp_path),)))
    message = str(failure.value)
    assert "training process worker 0 failed (exit code 1)" in message
    assert "the last words" in message
    assert "ZeroDivisionError: worker's own mistake (TPU_LOAD_LIBRARY=0)" in message, "no driver of TPUs is loaded"
    assert len(message.splitlines()) <= LAST_LINES + 1
    assert not any("restart" in message for message in cluster.messages())
    assert children(cluster.server.pid) == []


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("sys.exit(0)", r"^module: sys.exit\(0\) was called in .*leaver.py, line 3$"),
        ("os._exit(0)", "^training succeeded, but its chief did not write "),
    ],
)
def test_process_that_exits_before_it_is_done_has_failed(cluster, tmp_path, statement, message):
    (tmp_path / "leaver.py").write_text(f"import os, sys\ndef build_model(context):\n    {statement}\n")
    with pytest.raises(TrainingError, match=message):
        cluster.train(module=UserModule("leaver.build_model", (str(tmp_path),)))


@pytest.mark.e2e
def test_no_process_survives_a_launcher_that_is_killed(cluster, tmp_path):
    """The launcher gets SIGKILL and can do nothing, and yet all its processes end."""
    (tmp_path / "job.json").write_text(cluster.job.to_json())
    launcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from dataclasses import replace\n"
            "from tfx_distribute.components.launchers.local import launcher as local_launcher\n"
            "from tfx_distribute.trainer_module.job.training_job import *\n"
            "job = TrainingJob.from_json(Path(sys.argv[1], 'job.json').read_bytes())\n"
            "job = replace(job, training_options=TrainingOptions(32, train_steps=1_000_000),\n"
            "    distribution=Distribution('multi_worker_mirrored', num_workers=2, accelerator_type='cpu'))\n"
            "local_launcher.launch(job, sys.argv[1])\n",
            str(tmp_path),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # It has other children, which end at once.
        wait_until(lambda: any(len(children(child)) == 2 for child in children(launcher.pid)), seconds=180)
        (server,) = children(launcher.pid)
        training = children(server)
    finally:
        launcher.kill()
        launcher.wait()
    wait_until(lambda: not any(map(is_running, [server, *training])))


@pytest.mark.e2e
def test_cluster_with_servers_listens_on_loopback_only_and_its_job_is_private(cluster):
    seen = []

    def look(task, progress):
        if progress.step and not seen:
            assert_on_loopback(cluster, 4)
            seen.append(progress.step)

    cluster.train(Distribution("parameter_server", num_workers=2, accelerator_type="cpu"), on_progress=look)
    assert seen
    assert (cluster.folder / "job.json").stat().st_mode & 0o077 == 0


LEAVES = """
import multiprocessing, subprocess, threading, time
from model import build_model as build_digits

def build_model(context):
    threading.Thread(target=time.sleep, args=(10**6,)).start()
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(10**6,)).start()
    subprocess.Popen(["sleep", context.hparams["mark"]])
    return build_digits(context)
"""


@pytest.mark.e2e
def test_processes_of_a_module_end_with_training(cluster, tmp_path):
    """Covers an endless thread, a process of a pool, and a program."""
    (tmp_path / "own_leaves.py").write_text(LEAVES)
    module = UserModule("own_leaves.build_model", (str(tmp_path), *cluster.job.module.search_path))
    mark = f"{10**6}.{os.getpid()}"
    seen = []

    def look(task, progress):
        if progress.step:
            seen.extend(sleeping(mark))

    cluster.train(
        training_options=TrainingOptions(64, epochs=1),
        module=module,
        hparams={**cluster.job.hparams, "mark": mark},
        on_progress=look,
    )
    assert seen, "the process was running"
    assert sleeping(mark) == []
    assert children(cluster.server.pid) == []


def sleeping(mark):
    """Returns the processes that sleep for a marked number of seconds."""
    rows = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S607
    return [row for row in rows if row.endswith(f"sleep {mark}")]


@pytest.mark.e2e
def test_fork_server_that_dies_is_reported(cluster, own_fork_server):
    own_fork_server.wait_ready()
    cluster.server = own_fork_server

    def kill_server(task, progress):
        os.kill(own_fork_server.pid, signal.SIGKILL)

    with pytest.raises(TrainingError, match="the process that starts training processes ended"):
        cluster.train(training_options=LONG, on_progress=kill_server)
