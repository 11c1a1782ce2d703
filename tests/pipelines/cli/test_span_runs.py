"""Tests runs of several spans, one after the other."""

import contextlib
import types

import pytest

from tfx_distribute.pipelines.cli import span_runs
from tfx_distribute.pipelines.spec.pipeline import Data


@pytest.mark.parametrize(("codes", "read"), [((0, 3), ["2026-11-01", "2026-11-03"]), ((4, 0), ["2026-11-01"])])
def test_each_span_up_to_one_that_fails(tmp_path, monkeypatch, codes, read):
    """A model below its threshold is no failure, and a day without data is left out."""
    for day in ("2026-11-01", "2026-11-03", "2026-11-04"):
        (tmp_path / f"{day}.csv").write_text("x,label\n1,0\n")
    started = []

    @contextlib.contextmanager
    def start(words):
        started.append(words)
        yield types.SimpleNamespace(wait=lambda: codes[len(started) - 1])

    words = ["run", "pipeline.yaml", "--backfill", "2026-11-01..2026-11-03", "-p", "epochs=1"]
    monkeypatch.setattr(span_runs.sys, "argv", ["tfx-distribute", *words])
    monkeypatch.setattr(span_runs.subprocess, "Popen", start)
    data = Data(csv=f"{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}.csv", missing="skip")
    assert span_runs.run_each(data, "2026-11-01..2026-11-03") == codes[len(read) - 1]
    assert [each[-1] for each in started] == [f"span={name}" for name in read]
    assert started[0][3:-2] == ["run", "pipeline.yaml", "-p", "epochs=1"]
