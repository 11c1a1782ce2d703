"""Tests a pipeline on Kubeflow Pipelines, from its file to the pushed model.

Kubeflow itself is a stand-in, and steps are processes; tests/cluster has pods. The
compiled document, each step's command, TFX, Beam, TensorFlow and ML Metadata are real.
"""

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import example_project
import pytest
import tensorflow as tf
import webhook as webhooks
import yaml
from kfp_api import KfpApi
from kubeflow_pipelines import KubeflowPipelines, StepError
from metadata_service import MetadataService
from step_processes import StepProcesses
from tf_examples import make_example

# Each run has ten steps.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"
ROOT = "minio://mlpipeline/artifacts"


@dataclass
class Installation:
    """A Kubeflow Pipelines installation with a volume."""

    folder: Path
    claim: Path
    steps: StepProcesses
    pipelines: KubeflowPipelines

    def package(self, command, example: str, **changes: object) -> str:
        """Compiles an example for this installation with `tfx-distribute compile`."""
        # Nothing is mounted: the folder of the claim is at its mount path.
        text = (EXAMPLES / "digits" / "kind.yaml").read_text().replace("/shared", str(self.claim))
        shown = yaml.safe_load(text)
        shown["targets"]["kubeflow"]["metadata_service"] = self.pipelines.metadata.address
        shown["targets"]["kubeflow"]["api_service"] = self.pipelines.api.url.removeprefix("http://")
        parts = {name: shown[name] for name in ("push", "resources", "targets")}
        file = example_project.copy(self.folder / example, example, **(parts | changes))
        done = command("compile", file, "--target", "kubeflow", "-o", self.folder / f"{example}.yaml")
        assert done.code == 0, done.output
        # The content of the image.
        self.steps.environment = {**self.steps.environment, "PYTHONPATH": str(file.parent)}
        return (self.folder / f"{example}.yaml").read_text()


@pytest.fixture
def installation(tmp_path, forked):
    claim = tmp_path / "claim"
    claim.mkdir()
    (tmp_path / "kfp").mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with MetadataService() as metadata, KfpApi() as api:
        steps = StepProcesses(tmp_path / "kfp", forked, {"PATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"})
        yield Installation(tmp_path, claim, steps, KubeflowPipelines(steps, metadata, api=api))


@pytest.fixture
def webhook():
    with webhooks.receiving() as running:
        yield running


def pushed(installation: Installation) -> list[Path]:
    return sorted((installation.claim / "serving").glob("*/saved_model.pb"))


def check_report(installation: Installation, outputs: dict) -> None:
    """Checks what the pages of Kubeflow Pipelines show of an evaluation."""
    page = (installation.steps.folder / "store" / outputs["html"]["uri"].replace("://", "/")).read_text()
    assert page.startswith("<!doctype html>")
    for shown in ("trip_start_hour=3", "train_steps", "payment_type", "&gt;= 0.8", "blessed", "validation"):
        assert shown in page
    assert 0.8 < outputs["metrics"]["metadata"]["AUC"] < 1
    assert "tfx_version" not in outputs["metrics"]["metadata"], "the page would show it among the numbers"
    metadata = outputs["classification_metrics"]["metadata"]
    # Kubeflow stores lists and objects in an object, where its page reads them.
    matrix, curve = metadata["confusionMatrix"]["struct"], metadata["confidenceMetrics"]["list"]
    assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == ["negative", "positive"]
    assert sum(sum(row["row"]) for row in matrix["rows"]) == outputs["metrics"]["metadata"]["ExampleCount"]
    assert {"confidenceThreshold", "falsePositiveRate", "recall"} == set(curve[0])
    assert 10 < len(curve) <= 101


def assert_serves_without_tips(model: Path) -> None:
    """Requests to a served model have no tips: the model predicts them."""

    def trip(payment: str) -> bytes:
        trip = {"trip_miles": 3.5, "fare": 12.0, "trip_seconds": 900}
        start = {"trip_start_hour": 19, "trip_start_day": 6, "trip_start_month": 5}
        return make_example(**trip, **start, payment_type=payment, company="Taxi Affiliation Services")

    serve = tf.saved_model.load(str(model)).signatures["serving_default"]
    card, cash = serve(tf.constant([trip("Credit Card"), trip("Cash")]))["outputs"].numpy().ravel()
    assert card > cash, "tips in cash are not in the data"


def test_taxi_in_steps_with_cache_and_baseline(installation, command, webhook):
    """Trains in the step; inspects the data in each run; reuses unchanged results.

    Then those of the next day have drifted, and each run tells how it ended. The last
    one starts after the day for which it was scheduled.
    """
    data = installation.claim / "data"
    notify = {"urls": "NOTIFY_URLS", "when": ["succeeded", "stopped"]}
    installation.steps.environment = {**installation.steps.environment, "NOTIFY_URLS": webhook.address}
    shutil.copytree(Path(tf.__file__).parents[1] / "tfx/examples/chicago_taxi_pipeline/data/simple", data / "2026-11-01")
    evaluate = yaml.safe_load((EXAMPLES / "taxi" / "pipeline.yaml").read_text())["evaluate"]
    evaluate["metrics"]["ConfusionMatrixPlot"] = {}
    csv = {"csv": f"{data}/{{YYYY}}-{{MM}}-{{DD}}", "splits": {"train": 2, "eval": 1}}
    drift = {"drift": {"fare": 0.1, "payment_type": 0.1}}
    package = installation.package(command, "taxi", data=csv, evaluate=evaluate, validate=drift, notify=notify)
    installation.pipelines.output_file = "tmp"  # as before 2.15
    installation.steps.new_processes = ("Evaluator", "notify")
    first = installation.pipelines.run(package, {}, ROOT)
    assert first.cached == []
    assert first.parameters["latest-blessed-model"] == {"uri": f"{ROOT}/no-artifact"}
    assert first.parameters["last-data"] == {"uri": f"{ROOT}/no-artifact"}
    assert "baseline" not in first.outputs["Evaluator"]["blessing"]["metadata"]
    (model,) = pushed(installation)
    assert b"tips" in model.read_bytes(), "the evaluator's signature has them"
    assert_serves_without_tips(model.parent)
    assert json.loads(first.parameters["CsvExampleGen-input"]["resolved_input"])["last_span"] == "2026-11-01"
    examples = first.outputs["CsvExampleGen"]["examples"]["metadata"]
    assert "total_bytes" in examples["input_fingerprint"]
    check_report(installation, first.outputs["Evaluator"])
    message = webhook.messages.pop()
    assert message["title"] == "taxi: succeeded"
    for shown in (
        r"^run: [0-9a-f-]{36}$",
        r"^spans: 2026-11-01$",
        r"^AUC: 0\.[89]\d+ \(>= 0\.8 met\)$",
        rf"^model: {model.parent}$",
    ):
        assert re.search(shown, message["message"], re.M), message
    assert not webhook.messages

    installation.steps.new_processes = ()
    second = installation.pipelines.run(package, {}, ROOT)
    assert "CsvExampleGen-input" not in second.cached
    assert {"CsvExampleGen", "Transform", "Trainer"} < set(second.cached)
    assert "Evaluator" not in second.cached, "there is a blessed model now"
    blessed = first.outputs["Trainer"]["model"]["uri"]
    assert second.parameters["latest-blessed-model"] == {"uri": blessed}
    assert second.parameters["last-data"] == {"uri": first.outputs["ExampleValidator"]["anomalies"]["uri"]}
    assert "ExampleValidator" not in second.cached
    # It is the model of this run: had the push failed, it could still be pushed.
    metadata = second.outputs["Evaluator"]["blessing"]["metadata"]
    assert metadata["unusable_baseline"] == "it is the new model itself, which was blessed before"
    assert metadata["blessed"] == 1
    assert webhook.messages.pop()["title"] == "taxi: succeeded"

    (file,) = data.glob("*/*.csv")
    for day, text in {"2026-11-02": file.read_text().replace("Credit Card", "Cash"), "2026-11-03": "not there yet"}.items():
        (data / day).mkdir()
        (data / day / "data.csv").write_text(text)
    with pytest.raises(StepError, match="payment_type") as stopped:
        installation.pipelines.run(package, {"span": "scheduled"}, ROOT, scheduled_at="2026-11-03T00:30:00Z")
    assert stopped.value.step == "ExampleValidator"
    message = webhook.messages.pop()
    assert (message["title"], message["type"]) == ("taxi: stopped", "failure")
    assert "reason: ExampleValidator: " in message["message"]
    assert "spans: 2026-11-02" in message["message"]
