"""Runs Beam pipelines on the direct runner, with real worker processes."""

import os
import re
import signal
import stat
import time
from collections.abc import Iterable
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.direct.direct_runner import SwitchingDirectRunner
from beam_arguments import TWO_PROCESSES
from running import children, listening

from tfx_distribute.components.beam import worker
from tfx_distribute.components.beam.direct_runner import DirectRunner, WorkerError, as_default


@pytest.fixture(autouse=True)
def _no_worker_is_left():
    """The server of workers stays as long as this process."""
    worker.server()
    before = children(os.getpid())
    yield
    assert set(children(os.getpid())) <= set(before)


def test_two_processes_of_which_nothing_listens_on_a_port(tmp_path):
    runner, out = os.getpid(), tmp_path / "out"
    out.mkdir()
    before = set(listening([runner, *children(runner)]))  # servers of other tests in this process

    def look(element: int) -> tuple[int, int]:
        address = os.environ["CONTROL_API_SERVICE_DESCRIPTOR"]
        folder = Path(re.search(r'"unix:(.*)/socket"', address)[1])
        found = [os.getpid(), stat.S_IMODE(folder.stat().st_mode), listening([runner, *children(runner)]), str(folder)]
        (out / str(element)).write_text(repr(found))
        return element % 2, element

    def write_sum(pair: tuple[int, Iterable[int]], counts: list[int]) -> None:
        (out / f"sum-{pair[0]}").write_text(f"{sum(pair[1])} {counts}")

    with beam.Pipeline(argv=TWO_PROCESSES) as pipeline:
        groups = pipeline | beam.Create(range(40)) | beam.Reshuffle() | beam.Map(look) | beam.GroupByKey()
        count = groups | beam.combiners.Count.Globally()
        _ = groups | beam.Map(write_sum, beam.pvalue.AsList(count))

    seen = [eval((out / str(element)).read_text()) for element in range(40)]  # noqa: S307
    assert runner not in {pid for pid, *_ in seen}
    assert {mode for _, mode, *_ in seen} == {0o700}
    assert all(set(ports) <= before for _, _, ports, _ in seen)
    assert [(out / f"sum-{rest}").read_text() for rest in (0, 1)] == ["380 [2]", "400 [2]"]
    assert not any(Path(folder).exists() for *_, folder in seen), "the folder goes with the pipeline"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("variable", "status"), [("", 0), ("", 7), ("STATUS_API_SERVICE_DESCRIPTOR", 1)])
def test_a_worker_that_dies_fails_the_pipeline(monkeypatch, variable, status):
    """Beam alone would wait for it forever; with the variable, it dies at startup."""
    if variable:
        monkeypatch.setenv(variable, "no descriptor")

    def die(element: int) -> None:
        os._exit(status)

    with (
        pytest.raises(RuntimeError, match=rf"worker_\d+, a process of Beam, ended with status {status}"),
        beam.Pipeline(argv=TWO_PROCESSES) as pipeline,
    ):
        _ = pipeline | beam.Create([1]) | beam.Map(die)


@pytest.mark.timeout(120)
def test_a_worker_that_is_killed_may_have_run_out_of_memory():
    """Killed while it sends elements: Beam's own error is then `Empty`."""

    def send(element: int) -> tuple[int, bytes]:
        if element == 150:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return element % 3, bytes(300_000)

    message = r"worker_\d+, a process of Beam, ended with status -9\. The system kills .*direct_num_workers: 1"
    with pytest.raises(WorkerError, match=message), beam.Pipeline(argv=TWO_PROCESSES) as pipeline:
        _ = pipeline | beam.Create(range(200)) | beam.Reshuffle() | beam.Map(send) | beam.GroupByKey()


def test_modes_that_listen_on_every_interface_are_refused():
    arguments = [TWO_PROCESSES[0], "--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    with (
        pytest.raises(ValueError, match="Beam would listen on all interfaces of this machine"),
        beam.Pipeline(argv=arguments) as pipeline,
    ):
        _ = pipeline | beam.Create([1])


@pytest.mark.parametrize("name", [None, "DirectRunner", "direct"])
def test_pipelines_that_name_no_runner_or_that_of_beam(name):
    with as_default():
        assert isinstance(beam.Pipeline(name).runner, DirectRunner)
    assert isinstance(beam.Pipeline(name).runner, SwitchingDirectRunner)
