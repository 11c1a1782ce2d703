"""Tests finding runs in an ML Metadata store, and comparing them."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2 as proto

from tfx_distribute.components.launchers import locks
from tfx_distribute.components.report.data import Curve
from tfx_distribute.pipelines.targets.local import report, results, runs
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.reporting.progress import Progress

State = proto.Execution
OLD, FIRST, SECOND = "20260130-120000-000000", "20260131-120000-000000", "20260131-130000-000000"


class Store:
    """A store that runs are written into as TFX writes them."""

    def __init__(self, root: Path):
        self.root = root
        config = proto.ConnectionConfig()
        root.mkdir(parents=True)
        config.sqlite.filename_uri = str(root / runs.METADATA_FILE)
        config.sqlite.connection_mode = proto.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
        self._store = metadata_store.MetadataStore(config)
        self._types = {
            name: self._store.put_context_type(proto.ContextType(name=name)) for name in ("pipeline", "pipeline_run", "node")
        }

    def context(self, kind: str, name: str) -> proto.Context:
        found = self._store.get_context_by_type_and_name(kind, name)
        return found or proto.Context(type_id=self._types[kind], name=name)

    def artifact(self, kind: str, uri: Path | str, **properties: object) -> proto.Artifact:
        type_id = self._store.put_artifact_type(proto.ArtifactType(name=kind))
        artifact = proto.Artifact(type_id=type_id, uri=str(uri))
        set_values(artifact.custom_properties, properties)
        (artifact.id,) = self._store.put_artifacts([artifact])
        return artifact

    def node(
        self,
        run: str,
        name: str,
        state: int,
        outputs: dict[str, proto.Artifact] | None = None,
        inputs: dict[str, proto.Artifact] | None = None,
        resolved: bool = False,
        **properties: object,
    ) -> None:
        type_id = self._store.put_execution_type(proto.ExecutionType(name=f"components.{name}"))
        execution = proto.Execution(type_id=type_id, last_known_state=state)
        set_values(execution.custom_properties, properties)
        output = proto.Event.INTERNAL_OUTPUT if resolved else proto.Event.OUTPUT
        pairs = [
            (artifact, proto.Event(type=kind, path=proto.Event.Path(steps=[proto.Event.Path.Step(key=key)])))
            for kind, artifacts in ((proto.Event.INPUT, inputs), (output, outputs))
            for key, artifact in (artifacts or {}).items()
        ]
        contexts = [("pipeline", self.root.name), ("pipeline_run", run), ("node", f"{self.root.name}.{name}")]
        self.last_execution, _, _ = self._store.put_execution(
            execution, pairs, [self.context(*context) for context in contexts]
        )


def set_values(target: object, values: dict[str, object]) -> None:
    kinds = {int: "int_value", float: "double_value", str: "string_value"}
    for name, value in values.items():
        setattr(target[name], kinds[type(value)], value)  # type: ignore[index]


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    """Returns a store with a run, and a later one that used its cache."""
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "runs" / "digits")
    (tmp_path / "model").mkdir()
    examples = store.artifact("Examples", tmp_path / "deleted")
    earlier = store.artifact("Model", tmp_path / "model", training_loss=0.9)
    store.node(OLD, "ExampleGen", State.COMPLETE, {"examples": examples})
    store.node(
        OLD, "Trainer", State.COMPLETE, {"model": earlier}, epochs=1, seed=0, hparams='{"units": 16}', fingerprint="x"
    )
    store.node(FIRST, "ExampleGen", State.CACHED, {"examples": examples})
    store.node(FIRST, "latest-blessed-model", State.COMPLETE, {"model": earlier}, resolved=True)
    model = store.artifact("Model", tmp_path / "model", training_loss=0.5, tfx_version="1.16.0")
    outputs = {"model": model, "model_run": store.artifact("ModelRun", tmp_path / "model")}
    values = {"epochs": 2, "seed": 0, "hparams": '{"units": 32}', "module_fingerprint": "y", "custom_config": "null"}
    store.node(FIRST, "Trainer", State.COMPLETE, outputs, {"examples": examples}, **values)
    (store.root / "logs" / FIRST).mkdir(parents=True)
    return store


def test_a_run_with_a_cached_node(store):
    run = runs.find([store.root], FIRST)
    assert (run.pipeline, run.state, run.logs) == ("digits", "complete", store.root / "logs" / FIRST)
    assert [(node.name, node.state, node.from_run) for node in run.nodes] == [
        ("ExampleGen", "cached", OLD),
        ("latest-blessed-model", "complete", ""),
        ("Trainer", "complete", ""),
    ]
    assert (run.parameters, run.hparams) == ({"epochs": 2, "seed": 0}, {"units": 32})
    assert (run.changes, run.defaults) == ({"epochs": 2}, {"seed": 0})
    assert run.model is not None
    assert run.model.properties["training_loss"] == 0.5, "and not the model that the resolver has found"
    examples = run.find("Examples")
    assert examples is not None
    assert (examples.used_by, examples.is_missing) == (("Trainer",), True)


def test_names_of_runs(store):
    assert runs.find(runs.find_roots(None), None).id == FIRST
    assert runs.find([store.root], "digits").id == FIRST
    assert runs.find([store.root], "20260130").id == OLD
    for name, message in (
        ("2026", "2 runs begin with '2026'"),
        ("taxi", "there is no run 'taxi' in .*digits; the latest are"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            runs.find([store.root], name)


def test_runs_are_read_when_they_are_asked_for(store, monkeypatch):
    """A pipeline of each hour has hundreds of them after a month."""
    read, reading = [], runs._Stored.read

    def counted(self):
        read.append(self.id)
        return reading(self)

    monkeypatch.setattr(runs._Stored, "read", counted)
    assert next(runs.iterate_runs([store.root])).id == FIRST
    assert runs.find([store.root], OLD).id == OLD
    assert runs.find([store.root], "digits").id == FIRST
    assert read == [FIRST, OLD, FIRST]


def test_newest_span_that_each_run_has_read(store, tmp_path):
    assert runs.list_newest_spans(store.root) == []
    assert runs.list_newest_spans(tmp_path / "new") == []
    day = store.artifact("Examples", tmp_path, newest_span="2026-11-25")
    store.node(SECOND, "ExampleGen", State.COMPLETE, {"examples": day})
    store.node("20260131-140000-000000", "ExampleGen", State.CACHED, {"examples": day})
    later = store.artifact("Examples", tmp_path, newest_span="2026-11-26")
    store.node("20260131-160000-000000", "ExampleGen", State.COMPLETE, {"examples": later})
    assert runs.list_newest_spans(store.root) == [
        ("20260131-160000-000000", "2026-11-26"),
        ("20260131-140000-000000", "2026-11-25"),
        (SECOND, "2026-11-25"),
    ]


def test_places_without_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"--root: there are no runs in runs/; write the folder"):
        runs.find_roots(None)
    with pytest.raises(ConfigurationError, match="--root: there are no runs in elsewhere; write the folder"):
        runs.find_roots("elsewhere")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / runs.METADATA_FILE).write_text("not a database, but a long enough text to be read as one" * 20)
    with pytest.raises(ConfigurationError, match=r"--root: broken/metadata.sqlite cannot be read: .+; write another --root"):
        list(runs.iterate_runs(runs.find_roots("broken")))
    with pytest.raises(
        ConfigurationError, match=r"--root: .*broken/metadata.sqlite cannot be read: .+; write another --root"
    ):
        runs.list_newest_spans(tmp_path / "broken")


def test_runs_beside_a_folder_that_cannot_be_read(store):
    """An empty store is that of a run that was ended before its first node."""
    for name, text in (("broken", "not a database" * 200), ("new", "")):
        (store.root.parent / name).mkdir()
        (store.root.parent / name / runs.METADATA_FILE).write_text(text)
    warnings: list[str] = []
    assert [run.id for run in runs.iterate_runs(runs.find_roots(None), warnings.append)] == [FIRST, OLD]
    (warning,) = warnings
    assert warning.startswith("runs/broken/metadata.sqlite cannot be read: it is damaged")
    assert runs.find(runs.find_roots(None), "digits", warnings.append).id == FIRST
    with pytest.raises(ConfigurationError, match="there are no runs in runs/new"):
        runs.find(runs.find_roots("runs/new"), None)


def test_states(store):
    """Only the latest run may be going on, and only while its folder is locked."""
    store.node(SECOND, "ExampleGen", State.RUNNING)
    assert runs.find([store.root], SECOND).state == "interrupted"
    with locks.exclusive(str(store.root), "the run folder", "wait"):
        running, first, _ = runs.iterate_runs([store.root])
    assert (running.id, running.state, running.seconds, running.nodes[0].seconds) == (SECOND, "running", None, None)
    assert first.state == "complete"
    store.node(SECOND, "Trainer", State.FAILED)
    assert runs.find([store.root], SECOND).state == "failed"


def test_duration_of_a_run_that_was_ended(store):
    """TFX records nothing after the start of the node that was ended."""
    store.node(SECOND, "Trainer", State.RUNNING)
    logs = store.root / "logs" / SECOND
    logs.mkdir()
    (logs / "run.log").touch()
    started = runs.find([store.root], SECOND).started
    os.utime(logs / "run.log", (started + 90, started + 90))
    assert runs.find([store.root], SECOND).seconds == pytest.approx(90)
    os.utime(store.root / "logs" / FIRST, (started + 90, started + 90))
    assert runs.find([store.root], FIRST).seconds < 60


def test_anomalies_of_a_run_in_a_line(store, tmp_path):
    from tensorflow_metadata.proto.v0 import anomalies_pb2

    from tfx_distribute.pipelines.targets.local import report

    assert report.describe_anomalies(runs.find([store.root], FIRST)) == ""
    for split, names in (("train", ("tips",)), ("eval", ("tips", *(f"feature_{number}" for number in range(9))))):
        anomalies = anomalies_pb2.Anomalies()
        for name in names:
            anomalies.anomaly_info[name].short_description = "Column dropped"
        (tmp_path / "anomalies" / f"Split-{split}").mkdir(parents=True)
        (tmp_path / "anomalies" / f"Split-{split}" / "SchemaDiff.pb").write_bytes(anomalies.SerializeToString())
    found = store.artifact("ExampleAnomalies", tmp_path / "anomalies")
    store.node(SECOND, "ExampleValidator", State.COMPLETE, {"anomalies": found})
    line = report.describe_anomalies(runs.find([store.root], SECOND))
    assert line.startswith("tips: Column dropped; feature_0: Column dropped; feature_1")
    assert len(line) == 160
    assert line.endswith("...")


def test_examples_that_were_left_out_in_a_line(store):
    examples = store.artifact("Examples", "data", left_out="1 of 2 examples without a value of y (1)")
    store.node(SECOND, "CsvExampleGen", State.CACHED, {"examples": examples})
    store.node(SECOND, "Sharder", State.COMPLETE, {"sharded_examples": store.artifact("Examples", "shards")})
    lines = [runs.find([store.root], run).data for run in (FIRST, SECOND)]
    assert lines == [{}, {"left out": "1 of 2 examples without a value of y (1)"}]


def test_a_run_that_has_ended_while_another_starts(store):
    """Between two nodes, a run has no node that runs either."""
    time.sleep(1.1)  # the lock has whole seconds
    with locks.exclusive(str(store.root), "the run folder", "wait"):
        assert runs.find([store.root], FIRST).state == "complete"
        store.node(SECOND, "ExampleGen", State.COMPLETE)
        assert runs.find([store.root], SECOND).state == "running"
        assert runs.find([store.root], FIRST).state == "complete"


def test_report_of_what_is_left(store):
    """The rest is shown where files were deleted, cannot be read, or never written."""
    evaluation = store.artifact("ModelEvaluation", store.root)
    statistics = store.artifact("ExampleStatistics", store.root / "gone")
    store.node(FIRST, "Evaluator", State.COMPLETE, {"evaluation": evaluation, "statistics": statistics})
    store.node(FIRST, "Pusher", State.FAILED)
    made = report.make(runs.find([store.root], FIRST))
    assert made.state == "failed"
    assert made.training == {"training_loss": 0.5}
    assert made.hparams == {"units": 32}
    missing = "\n".join(made.missing)
    for text in (
        "Everything after Pusher, which failed",
        f"Data statistics: the files are not where the run wrote them ({store.root / 'gone'})",
        f"Evaluation: {store.root} cannot be read (",
        "Training curves: the training has left no history; see its TensorBoard logs",
    ):
        assert text in missing
    report.write(made, store.root / "logs" / FIRST / report.FILE)
    assert "Everything after Pusher" in (store.root / "logs" / FIRST / report.FILE).read_text()


def test_report_of_a_training_that_was_killed(store):
    """No event names the outputs of its Trainer, but they are where it wrote them."""
    store.node(SECOND, "Trainer", State.RUNNING)
    execution = store.last_execution
    history = store.root / "artifacts" / "Trainer" / "model_run" / str(execution) / "history"
    history.mkdir(parents=True)
    record = Progress("epoch", 45, metrics={"loss": 0.5}, seconds={"compute": 2.0}, time=1.0, task="chief-0")
    (history / "chief-0-1.jsonl").write_text(record.to_json())
    run = runs.find([store.root], SECOND)
    made = report.make(run)
    assert made.curves.metrics == (Curve("loss", "train", ((45, 0.5),)),)
    assert made.time_use is not None
    assert results.find_tensorboard_folders([run]) == {"Trainer": str(history.parent)}


def test_report_of_a_training_that_failed(store):
    store.node(SECOND, "Trainer", State.FAILED)
    logs = store.root / "logs" / SECOND
    logs.mkdir()
    (logs / "run.log").write_text(
        "Traceback (most recent call last):\n  File ...\n"
        "errors.TrainingError: training process chief failed (exit code 1)\n"
        "  Traceback ...\n  \n  ValueError: <b>boom</b>\n  \n\t [[{{node while}}]]\n"
    )
    assert report.make(runs.find([store.root], SECOND)).missing == (
        "Everything after Trainer, which failed: ValueError: <b>boom</b>",
        "Training curves, tries and times: TFX removes what a node has written that fails",
    )


def test_a_folder_that_was_moved_or_copied(store):
    model = store.root / "artifacts" / "Trainer" / "model" / "9"
    model.mkdir(parents=True)
    gone = store.root / "artifacts" / "Trainer" / "model_run" / "9"
    outputs = {"model": store.artifact("Model", model), "model_run": store.artifact("ModelRun", gone)}
    store.node(SECOND, "Trainer", State.COMPLETE, outputs)
    copied = store.root.parent / "copied"
    shutil.copytree(store.root, copied)
    for root in (store.root, copied, copied.relative_to(Path.cwd())):
        found = runs.find([root], SECOND)
        places = {artifact.key: (artifact.uri, artifact.is_missing) for artifact in found.artifacts}
        expected = root.absolute() / "artifacts" / "Trainer" / "model" / "9"
        assert places == {"model": (str(expected), False), "model_run": (str(gone), True)}


def test_comparison(store):
    first, old = (runs.find([store.root], name) for name in (FIRST, OLD))
    assert results.read_evaluation(first) == (None, ())
    metrics = results.list_metrics(first, None)
    assert metrics == {"training_loss": 0.5}
    compared = results.compare([first, old], [metrics, {"training_loss": 0.5, "AUC": 0.9}])
    assert compared["parameter"] == {"epochs": (2, 1), "hparams.units": (32, 16), "module": ("y", None)}
    assert compared["metric"] == {"AUC": (None, 0.9)}
    day = store.artifact("Examples", "data", spans="2026-11-25")
    store.node(SECOND, "CsvExampleGen", State.COMPLETE, {"examples": day})
    model = store.artifact("Model", "model", base_model="models/7")
    store.node(SECOND, "Trainer", State.COMPLETE, {"model": model, "model_run": store.artifact("ModelRun", "run")})
    differing = results.compare([first, runs.find([store.root], SECOND)], [{}, {}])["parameter"]
    assert (differing["spans"], differing["base_model"]) == ((None, "2026-11-25"), (None, "models/7"))


def test_hyperparameters_are_those_that_a_search_has_found(store, tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "best_hyperparameters.txt").write_text('{"space": [], "values": {"units": 64}}')
    best = store.artifact("HyperParameters", tmp_path / "best")
    store.node(FIRST, "Tuner", State.COMPLETE, {"best_hyperparameters": best})
    first, old = (runs.find([store.root], name) for name in (FIRST, OLD))
    assert first.hparams == report.make(first).hparams == {"units": 64}
    assert results.compare([first, old], [{}, {}])["parameter"]["hparams.units"] == (64, 16)


def test_tensorboard_folders(store, tmp_path):
    first = runs.find([store.root], FIRST)
    assert results.make_tensorboard_arguments(results.find_tensorboard_folders([first])) == [
        "--logdir",
        f"{tmp_path}/model",
    ]
    other = replace(first, id="other")
    assert results.make_tensorboard_arguments(results.find_tensorboard_folders([first, other])) == [
        "--logdir_spec",
        f"{FIRST}/Trainer:{tmp_path}/model,other/Trainer:{tmp_path}/model",
    ]
    assert results.find_tensorboard_folders([runs.find([store.root], OLD)]) == {}
