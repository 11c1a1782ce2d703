"""Tests how many processes Beam gets, with data of different sizes."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions
from tfx.dsl.component.experimental.annotations import BeamComponentParameter, InputArtifact, OutputArtifact
from tfx.dsl.component.experimental.decorators import component
from tfx.types import standard_artifacts

from tfx_distribute.components.example_gen.component import CsvExampleGen
from tfx_distribute.pipelines.spec.beam import Beam, make_pipeline_args
from tfx_distribute.pipelines.targets.local import beam_processes


@component(use_beam=True)
def Looking(  # noqa: N802
    examples: InputArtifact[standard_artifacts.Examples],
    workers: OutputArtifact[standard_artifacts.String],
    beam_pipeline: BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    workers.value = str(beam_pipeline._options.view_as(DirectOptions).direct_num_workers)


@pytest.mark.parametrize(
    ("rows", "setting", "expected"),
    [(100, Beam(), 2), (2, Beam(), 1), (100, Beam(direct_num_workers=1), 1)],
    ids=["much", "little", "as it says"],
)
def test_processes(run, tmp_path, monkeypatch, rows, setting, expected):
    monkeypatch.setattr(beam_processes, "MIN_BYTES_OF_FILES", 200)
    monkeypatch.setattr(beam_processes, "MIN_BYTES_OF_EXAMPLES", 200)
    monkeypatch.setattr(beam_processes, "max_processes", lambda: 2)
    data = tmp_path / "data"
    data.mkdir()
    (data / "rows.csv").write_text("x,y\n" + "1,2\n" * rows)
    arguments = make_pipeline_args(setting)
    reading = CsvExampleGen(input_base=str(data)).with_beam_pipeline_args(arguments)
    looking = Looking(examples=reading.outputs["examples"]).with_beam_pipeline_args(arguments)
    run(tmp_path / "root", reading, looking)
    artifacts = tmp_path / "root" / "artifacts"
    (written,) = (artifacts / "Looking" / "workers").iterdir()
    assert (written / "value").read_text() == str(expected)
    names = {file.name for file in artifacts.glob("CsvExampleGen/examples/*/Split-train/*")}
    assert (len(names) > 1) == (expected > 1)
    assert all(name.endswith(f"-of-{len(names):05d}.gz") for name in names)


def test_a_machine_without_memory_for_many_processes(monkeypatch):
    pages = {"SC_PHYS_PAGES": 9 << 20, "SC_PAGE_SIZE": 1024}
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sysconf", pages.__getitem__)
    assert beam_processes.max_processes() == 2
    monkeypatch.setitem(pages, "SC_PHYS_PAGES", 1 << 10)
    assert beam_processes.max_processes() == 1
    monkeypatch.setitem(pages, "SC_PHYS_PAGES", 1 << 30)
    assert beam_processes.max_processes() == 8
