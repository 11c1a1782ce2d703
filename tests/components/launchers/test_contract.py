"""Tests that all launchers keep the contract of their common interface.

A launcher takes part with a harness, see `launcher_harness`.
"""

import contextlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kubernetes_harness import KubernetesHarness
from launcher_harness import Act, Harness
from own_launcher import SshLauncher, SshSettings
from process_harnesses import LocalHarness, OwnHarness
from running import wait_until
from vertex_harness import VertexHarness

from tfx_distribute.components.launchers.errors import NoRoomError, NotFollowedError
from tfx_distribute.components.launchers.launcher import Limits, Restarts, Training, follow
from tfx_distribute.components.launchers.sigterm import TerminatedError
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import TrainingResult

HARNESSES = {"local": LocalHarness, "ssh": OwnHarness, "kubernetes": KubernetesHarness, "vertex": VertexHarness}


@dataclass(frozen=True)
class Case:
    """A training from its start to its end.

    Attributes:
      name: Name of the case.
      acts: What the training does at each start.
      num_starts: How often it is started.
      error: What `follow` raises; None if training succeeds.
      message: Part of the error's message.
      max_restarts: As in `Restarts`.
      saves: True if it saves between its starts.
      start_seconds: As in `Limits`.
      event: What happens while it runs: a signal, or another attempt takes the lease.
      stays: True if what `follow` leaves may still run.
    """

    name: str
    acts: tuple[Act, ...]
    num_starts: int = 1
    error: type[BaseException] | None = None
    message: str = ""
    max_restarts: int = 0
    saves: bool = False
    start_seconds: float = 0.0
    event: str = ""
    stays: bool = False


CASES = [
    Case("it succeeds", ("succeed",)),
    Case("it fails for good", ("break",), error=TrainingError, max_restarts=3),
    Case("it starts again from each save", ("fail", "fail", "succeed"), 3, max_restarts=1, saves=True),
    Case("a signal stops it", ("run",), error=TerminatedError, event="signal", max_restarts=3),
    Case("it does not start in time", ("wait",), 0, NoRoomError, "has not started within 0.5 s", start_seconds=0.5),
    Case("another attempt takes the lease", ("run",), error=NotFollowedError, event="lease", stays=True),
]


@pytest.fixture(params=HARNESSES)
def harness(request, tmp_path, monkeypatch) -> Iterator[Harness]:
    harness_class = HARNESSES[request.param]
    case = request.node.callspec.params.get("case")
    name = case.name if case else request.node.originalname.removeprefix("test_").replace("_", " ")
    if name in harness_class.SKIPPED:
        pytest.skip(harness_class.SKIPPED[name])
    harness = harness_class(tmp_path, monkeypatch)
    yield harness
    harness.close()


def start(harness, restarts, has_result=False):
    """Returns a new launcher, and if it has something to follow."""
    launcher = harness.make_launcher(restarts)
    launcher.poll_seconds = min(launcher.poll_seconds, 0.05)
    return launcher, launcher.start(launcher.request(harness.training), has_result)


@contextlib.contextmanager
def signalled_when(condition):
    """Sends SIGTERM to this process as soon as a condition is true."""

    def send():
        wait_until(condition)
        time.sleep(0.5)  # for the call that has started it to return
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(harness, case):
    harness.act(*case.acts)
    steps = itertools.count(1)
    restarts = Restarts(case.max_restarts, lambda: next(steps) if case.saves else 0)
    is_lost = harness.is_running if case.event == "lease" else lambda: False
    limits = Limits(restarts, case.start_seconds, is_lost=is_lost)
    launcher = harness.make_launcher(restarts)
    launcher.poll_seconds = min(launcher.poll_seconds, 0.05)
    request = launcher.request(replace(harness.training, max_restarts=case.max_restarts))
    with (
        signalled_when(harness.is_running) if case.event == "signal" else contextlib.nullcontext(),
        pytest.raises(case.error) if case.error else contextlib.nullcontext() as raised,
    ):
        follow(launcher, request, limits)
    assert harness.num_starts() == case.num_starts
    assert case.message in str(raised.value if case.error else "")
    if case.stays:
        assert harness.is_running()
    else:
        wait_until(lambda: not harness.exists())


def test_a_request_changes_nothing(harness):
    """It is made for `plan` too, and is the same each time."""
    harness.act("run")
    first, second = (harness.make_launcher(Restarts(0)).request(harness.training) for _ in range(2))
    assert first == second
    assert not harness.exists()


def test_a_retry_takes_it_over(harness):
    harness.act("run")
    for _ in range(2):
        launcher, is_followed = start(harness, Restarts(0))
        assert is_followed
        wait_until(lambda: launcher.state().phase == "running")  # noqa: B023 (called at once)
    assert harness.num_starts() == 1
    launcher.stop(has_time=True)
    wait_until(lambda: not harness.exists())


def test_a_training_with_a_result_is_not_started(harness):
    harness.act("run")
    _, is_followed = start(harness, Restarts(0), has_result=True)
    assert not is_followed
    assert not harness.exists()


@pytest.mark.e2e
def test_the_launcher_of_another_package_trains(cluster):
    """Without ssh: on this machine."""
    job_file = cluster.folder / "job.json"
    job_file.write_text(cluster.job.to_json())
    settings = SshSettings("digits", hosts=("127.0.0.1",), python=sys.executable, ssh=("sh", "-c", 'eval "exec $2"', "ssh"))
    launcher = SshLauncher(settings)
    follow(
        launcher, launcher.request(Training("digits-1", str(job_file), cluster.job.distribution, {})), Limits(Restarts(0))
    )
    assert TrainingResult.from_json(Path(cluster.job.outputs.result_file).read_text()).train_steps == 44
