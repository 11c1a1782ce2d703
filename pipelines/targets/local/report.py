"""Makes the report of a run on this machine, from ML Metadata and its artifacts."""

import contextlib
import re
from pathlib import Path

from tfx_distribute.components.report import artifacts, page
from tfx_distribute.components.report.data import Report
from tfx_distribute.pipelines.targets.local import results
from tfx_distribute.pipelines.targets.local.runs import Run

FILE = "report.html"
_LOG_BYTES = 1_000_000  # at the end of a log, where its last error is looked for
_LINE_LENGTH = 500
_ANOMALIES_LENGTH = 160
_ERROR_LINE = re.compile(r"\s*[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)(: .*)?$")


def make(run: Run) -> Report:
    """Reads what the report of a run shows; what is missing is left out and named."""
    resolved = [each for each in run.artifacts if each.is_resolved]
    parts = artifacts.read(
        statistics=_uri(run, "ExampleStatistics"),
        anomalies=_uri(run, "ExampleAnomalies"),
        last_data=next((each.uri for each in resolved if each.type == "ExampleAnomalies"), ""),
        model_run=_uri(run, "ModelRun"),
        evaluation=_uri(run, "ModelEvaluation"),
        trials=_uri(run, "TunerResults"),
        blessed=run.blessed,
        unusable_baseline=run.unusable_baseline,
        search=run.read_properties("TunerResults"),
    )
    missing = list(parts.pop("missing"))
    failed = [node.name for node in run.nodes if node.state == "failed"]
    if run.state == "stopped":
        missing.insert(0, "Everything after ExampleValidator, which has rejected the data and stopped the run")
    elif failed:
        error = _read_error(run.logs / "run.log") if run.logs else ""
        missing.insert(0, f"Everything after {failed[0]}, which failed" + (f": {error}" if error else ""))
        if "Trainer" in failed and run.find("ModelRun") is None:
            missing.insert(1, "Training curves, tries and times: TFX removes what a node has written that fails")
    elif run.state in ("interrupted", "canceled"):
        missing.insert(0, f"Everything after {run.nodes[-1].name if run.nodes else 'the start'}: the run was {run.state}")
    elif run.state == "running":
        missing.insert(0, "Nodes that have not ended: the run is going on")
    if run.logs is None:
        missing.append("Logs: their folder has been deleted")
    if run.model and not parts.get("curves") and run.find("ModelRun") is None:
        missing.append("Training curves: the Trainer has no output model_run")
    return Report(
        pipeline=run.pipeline,
        run=run.id,
        state=run.state,
        started=run.started,
        seconds=run.seconds,
        nodes=run.nodes,
        data=run.data,
        training=run.training,
        parameters=run.changes,
        defaults=run.defaults,
        hparams=run.hparams,
        artifacts=run.artifacts,
        pushed=run.pushed,
        commands=results.list_commands(run),
        missing=tuple(missing),
        **parts,
    )


def _read_error(log: Path) -> str:
    """Returns the last line of the last error in a log; empty without one."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_BYTES))
        _, _, text = file.read().decode(errors="replace").rpartition("Traceback (most recent call last):")
        lines = [line.strip() for line in text.splitlines() if _ERROR_LINE.match(line)]
        return lines[-1][:_LINE_LENGTH] if lines else ""
    return ""


def write(report: Report, path: Path) -> None:
    """Writes a report as an HTML file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.render(report), encoding="utf-8")


def describe_anomalies(run: Run) -> str:
    """Describes in one line what ExampleValidator has found; empty if nothing."""
    anomalies = artifacts.read(anomalies=_uri(run, "ExampleAnomalies")).get("anomalies") or ()
    found = dict.fromkeys(f"{anomaly.feature or 'all features'}: {anomaly.summary}" for anomaly in anomalies)
    line = " ".join("; ".join(found).split())
    return line if len(line) <= _ANOMALIES_LENGTH else f"{line[: _ANOMALIES_LENGTH - 3]}..."


def _uri(run: Run, type_name: str) -> str:
    artifact = run.find(type_name)
    return artifact.uri if artifact else ""
