"""Tests the page of a report: its parts, hostile names, and a real browser."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape, unescape

import pytest

from tfx_distribute.components.report import page
from tfx_distribute.components.report.data import (
    Anomaly,
    Artifact,
    Cell,
    Curve,
    Curves,
    Evaluation,
    Feature,
    Histogram,
    Node,
    Report,
    Slice,
    Split,
)
from tfx_distribute.components.tuner.trials import SearchResult, Trial
from tfx_distribute.trainer_module.job.time_use import ProcessTime, summarize

HOSTILE = "<script>alert('x')</script><img src=https://example.com/x.png>$\\frac{1}{2}$&\u202e\x00"

REPORT = Report(
    pipeline="digits",
    run="20260131-120000-000000",
    state="complete",
    started=1769860800.0,
    seconds=83.0,
    nodes=(
        Node("ExampleGen", "cached", 1769860800.0, 0.1, "20260130-120000-000000", 12.5),
        Node("Trainer", "complete", 1769860801.0, 60.0),
        Node("Pusher", "failed", 1769860861.0, 0.5),
    ),
    splits=(
        Split(
            "train",
            10,
            (
                Feature("fare", "float", 8, 2, {"mean": 2.5}, Histogram((3, 5), (0, 2, 4))),
                Feature("payment", "text", 10, 0, {"unique": 2}, Histogram((7, 3), labels=("cash", "card"))),
                Feature("constant", "int", 10, 0, {"mean": 1}, Histogram((10,), (1, 1))),
                Feature("image", "bytes", 10),
            ),
        ),
        Split("eval", 5, (Feature("fare", "float", 5, 0, {"mean": 2}, Histogram((2, 3), (0, 2, 4))),)),
    ),
    data={"left out": "12 of 1,000 examples without a value of <y> (10), x (2)"},
    anomalies=(Anomaly("eval", "fare", "error", "Column dropped", "not present"),),
    training={"strategy": "multi_worker_mirrored", "num_replicas": 2, "train_steps": 460},
    curves=Curves(
        metrics=(
            Curve("loss", "train", ((1, 0.9), (2, 0.5))),
            Curve("loss", "train", ((3, 0.4),)),
            Curve("loss", "worker 0", ((1, 0.8),)),
        ),
        throughput=(Curve("examples per second", "chief 0", ((1, 1000.0),)),),
        restarts=(3,),
    ),
    time_use=summarize(
        [
            ProcessTime("chief-0", {"compute": 4.0, "wait_for_peers": 6.0}),
            ProcessTime("worker-0", {"compute": 4.0, "input": 6.0}),
        ]
    ),
    evaluation=Evaluation(
        (Slice("", {"AUC": Cell(0.85, 0.9)}), Slice("hour=3", {"AUC": Cell(0.7, None, failed=True)})),
        {"AUC": ">= 0.8"},
        blessed=False,
        confusion=(("0", "1"), ((5, 1), (1, 3))),
        roc=((0.0, 1.0, 1.0), (0.5, 0.2, 0.8), (1.0, 0.0, 0.0)),
    ),
    search=SearchResult(
        "val_accuracy",
        "max",
        (
            Trial("1", "COMPLETED", {"learning_rate": 0.001, "activation": "relu"}, 0.9, 460, seconds=12.0),
            Trial("0", "COMPLETED", {"learning_rate": 0.1, "activation": "tanh"}, 0.8, 460),
            Trial("2", "FAILED", {"learning_rate": 1.0, "activation": "relu"}, message="ValueError: too many"),
        ),
    ),
    parameters={"strategy": "multi_worker_mirrored"},
    defaults={"seed": 0},
    hparams={"learning_rate": 0.002},
    artifacts=(Artifact("Trainer", "model", "Model", 9, f"/runs/{'long-' * 50}/8", ("Evaluator",), is_missing=True),),
    pushed="/serving/1",
    commands={"log": "/runs/run.log"},
    missing=("Logs: their folder has been deleted",),
)


def read_text(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", "", html)).split())


def test_all_numbers_are_readable_without_a_script():
    html = page.render(REPORT)
    text = read_text(html)
    for shown in (
        "from run 20260130-120000-000000, where it took 12.5 s",
        "train: 10 examples; eval: 5 examples",
        "4 features. Left out: 12 of 1,000 examples without a value of <y> (10), x (2).",
        "Column dropped",
        "0.7 ✗",
        "-0.05",
        "worker 0 holds the others back for 60 %",
        "ValueError: too many",
        "1 min 23 s",
        "Logs: their folder has been deleted",
        "multi_worker_mirrored",
        "not there",
        "restart",
    ):
        assert shown in text, shown
    assert "<script" not in html
    ids = re.findall(' id="(.*?)"', html)
    assert len(ids) == len(set(ids))
    assert {address.removeprefix("#") for address in re.findall(r'(?:src|href)="(.*?)"', html)} <= set(ids)
    assert "url(http" not in html
    assert "default-src 'none'" in html, "nothing is loaded"


def test_a_report_of_nothing_has_its_reasons():
    text = read_text(page.render(Report("digits", missing=("Everything: the run failed",))))
    assert "Everything: the run failed" in text
    assert "Nodes" not in text


def test_names_are_escaped():
    """Everything that users name is text, wherever the page or a drawing has it."""

    def spoil(value: object) -> object:
        if isinstance(value, str):
            return HOSTILE
        if isinstance(value, tuple):
            return tuple(map(spoil, value))
        if isinstance(value, dict):
            return {f"{HOSTILE}{number}": spoil(part) for number, part in enumerate(value.values())}
        if hasattr(value, "__dataclass_fields__"):
            kept = ("state", "severity", "goal", "reason")
            if isinstance(value, ProcessTime):
                return replace(value, task=HOSTILE)
            return replace(value, **{name: spoil(part) for name, part in vars(value).items() if name not in kept})  # type: ignore[type-var]
        return value

    html = page.render(spoil(REPORT))  # type: ignore[arg-type]
    assert "<script" not in html
    assert "<img" not in html
    assert read_text(html).count("<script>alert('x')</script>") > 20
    assert "\x00" not in html
    assert "\u202e" not in html


MEASURE = """
onload = () => document.title = JSON.stringify([...document.querySelectorAll("iframe")].map(({contentWindow: page}) => {
  const find = name => page.document.querySelector(name), color = name => page.getComputedStyle(find(name)).backgroundColor
  const lines = [1, 2, 3].map(cell => {
    const range = page.document.createRange()
    range.selectNode(find(`#lineage tbody tr > :nth-child(${cell})`).firstChild)
    return range.getClientRects().length
  })
  return {width: find("html").scrollWidth, bar: color("#nodes .bar i"), lines,
    drawings: page.document.querySelectorAll("figure svg").length}
}))
"""


@pytest.mark.e2e
@pytest.mark.parametrize(("scheme", "color"), [(1, "rgb(122, 134, 153)"), (0, "rgb(147, 160, 181)")])
def test_page_in_a_browser(tmp_path, scheme, color):
    """No overflow on a phone, and drawings with the colours of light and dark mode."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no chromium; install it with: apt-get install chromium")
    document = escape(page.render(REPORT))
    widths = (360, 1280)
    frames = "".join(f'<iframe width="{width}" height="900" srcdoc="{document}"></iframe>' for width in widths)
    file = tmp_path / "frames.html"
    file.write_text(f"<!doctype html><title></title><script>{MEASURE}</script>{frames}", encoding="utf-8")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    flags.append(f"--blink-settings=preferredColorScheme={scheme}")
    done = subprocess.run([program, *flags, file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    for width, measured in zip(widths, json.loads(re.search("<title>(.+)</title>", done.stdout)[1]), strict=True):
        assert measured["width"] <= width
        assert (measured["bar"], measured["drawings"]) == (color, 5)
        assert measured["lines"] == [1, 1, 1], "no word is broken"
