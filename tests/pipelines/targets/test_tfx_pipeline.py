"""Tests the TFX pipeline of a spec, for each kind of data and with parts left out."""

import dataclasses
import importlib.metadata
import json
import re

import pytest
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.utils import model_util
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.components.example_gen.custom_executors import avro_executor
from tfx.dsl.components.base import executor_spec
from tfx.orchestration import data_types

from tfx_distribute.components import Search, ValueRange
from tfx_distribute.pipelines.spec import beam, user_module
from tfx_distribute.pipelines.spec.pipeline import (
    BaseModelSpec,
    Change,
    Data,
    Evaluate,
    Metric,
    Parameters,
    PipelineSpec,
    Push,
    Train,
    Transform,
)
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.warm_start import WarmStart

PLACES = tfx_pipeline.PipelinePaths(pipeline_root="/root", metadata=None, push_directory="/serving")


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "own.py").write_text("def build_model(context): ...\ndef preprocessing_fn(inputs): ...\n")
    (tmp_path / "data.csv").write_text("x,y\n1,2\n")
    return PipelineSpec(
        name="mine",
        module=str(tmp_path / "own.py"),
        data=Data(csv=str(tmp_path / "data.csv")),
        trainer=Train(label="y", parameters=Parameters(epochs=2), hparams={"rate": 0.5}),
    )


def build(spec: PipelineSpec):
    return tfx_pipeline.build(spec, user_module.find(spec), PLACES)


def ids(pipeline) -> list[str]:
    return [node.id for node in pipeline.components]


def node(pipeline, name: str):
    return next(component for component in pipeline.components if component.id == name)


def test_smallest_pipeline(spec):
    pipeline = build(spec)
    assert set(ids(pipeline)) == {"CsvExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Sharder", "Trainer"}
    properties = node(pipeline, "CsvExampleGen").exec_properties
    assert properties["input_base"] == spec.data.csv.removesuffix("/data.csv")
    assert json.loads(properties["input_config"])["splits"] == [{"name": "all", "pattern": "data.csv"}]
    assert pipeline.beam_pipeline_args == beam.make_pipeline_args(spec.beam)
    assert pipeline.enable_cache


def test_whole_pipeline_with_a_baseline(spec):
    change = Evaluate(metrics={"AUC": Metric(lower_bound=0.5, change=Change(absolute=-0.1))}, slices=[["x"]])
    pipeline = build(spec.model_copy(update={"transform": Transform(), "evaluate": change, "push": Push(keep=5)}))
    assert set(ids(pipeline)) >= {"Transform", "latest-blessed-model", "Trainer", "Evaluator", "Pusher"}
    assert json.loads(node(pipeline, "Pusher").exec_properties["custom_config"]) == {"keep": 5}
    config = json.loads(node(pipeline, "Evaluator").exec_properties["eval_config"])
    (metric,) = config["metrics_specs"][0]["metrics"]
    assert (metric["class_name"], json.loads(metric["config"])) == ("AUC", {"name": "AUC"})
    assert metric["threshold"]["value_threshold"] == {"lower_bound": 0.5}
    assert metric["threshold"]["change_threshold"] == {"absolute": -0.1, "direction": "HIGHER_IS_BETTER"}
    assert config["slicing_specs"] == [{}, {"feature_keys": ["x"]}]
    assert config["model_specs"][0]["preprocessing_function_names"] == ["transform_features"]


def test_trainer_parameters_are_pipeline_parameters(spec):
    pipeline = build(spec)
    properties = {
        name: value
        for component in ("ExampleValidator", "Sharder", "Trainer")
        for name, value in node(pipeline, component).exec_properties.items()
    }
    for name, value in tfx_pipeline.get_parameter_values(spec).items():
        parameter = properties[name]
        assert isinstance(parameter, data_types.RuntimeParameter), name
        assert (parameter.name, parameter.ptype, parameter.default) == (name, type(value), value)


def changed(spec: PipelineSpec, change) -> set[str]:
    """Returns the components whose cache keys differ after a change."""

    def keys() -> dict[str, str]:
        return {node.id: str(sorted(node.exec_properties.items(), key=str)) for node in build(spec).components}

    def without_addresses(keys: dict[str, str]) -> dict[str, str]:
        return {name: re.sub(r" at 0x[0-9a-f]+", "", key) for name, key in keys.items()}

    before = without_addresses(keys())
    assert without_addresses(keys()) == before
    change()
    after = without_addresses(keys())
    return {name for name in before if before[name] != after[name]}


def test_changed_module_is_another_cache_key(spec, tmp_path):
    """TFX's cache key has only names of functions; the fingerprint adds their code."""
    with_transform = spec.model_copy(update={"transform": Transform()})
    assert changed(with_transform, lambda: (tmp_path / "helper.py").write_text("x = 1\n")) == {"Transform", "Trainer"}
    assert changed(with_transform, lambda: (tmp_path / "words.txt").write_text("a\n")) == {"Transform", "Trainer"}
    assert changed(with_transform, lambda: (tmp_path / "data.csv").write_text("x,y\n2,3\n")) == set(), "its driver looks"


def test_edited_schema_file_is_another_cache_key(spec, tmp_path):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text('feature { name: "x" type: FLOAT }')
    curated = spec.model_copy(update={"data": Data(csv=spec.data.csv, schema_file=str(schema)), "transform": Transform()})
    assert changed(curated, lambda: schema.write_text('feature { name: "x" type: INT }')) == {"ImportSchemaGen"}


def test_code_and_files_of_an_example_gen_are_part_of_its_cache_key(spec, tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    (tmp_path / "query.sql").write_text("select 1")
    (tmp_path / "code" / "own_names.py").write_text("NAME = 'x'\n")
    (tmp_path / "code" / "own_source.py").write_text(
        "import own_names\nfrom tfx.components.example_gen.csv_example_gen.component import CsvExampleGen\n"
        "def make(query, output_config):\n    return CsvExampleGen(input_base=query, output_config=output_config)\n"
    )
    (tmp_path / "code" / "model.py").write_text((tmp_path / "own.py").read_text())
    data = Data(example_gen="own_source.make", example_gen_args={"query": str(tmp_path / "query.sql")})
    own = spec.model_copy(update={"data": data, "module": str(tmp_path / "code" / "model.py")})
    assert changed(own, lambda: (tmp_path / "query.sql").write_text("select 2")) == {"CsvExampleGen"}
    names = tmp_path / "code" / "own_names.py"
    assert changed(own, lambda: names.write_text("NAME = 'y'\n")) == {"CsvExampleGen", "Trainer"}
    model = tmp_path / "code" / "model.py"
    assert changed(own, lambda: model.write_text(model.read_text() + "#")) == {"Trainer"}


def test_other_packages_are_other_cache_keys_of_all_components(spec, monkeypatch):
    components = {node.id for node in build(spec).components}
    version = importlib.metadata.version
    newer = lambda name: f"{version(name)}.1" if name == "tensorflow" else version(name)  # noqa: E731
    assert changed(spec, lambda: monkeypatch.setattr(importlib.metadata, "version", newer)) == components


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module.Gen", "cannot make 'no_such_module.Gen': ModuleNotFoundError"),
        ("collections.Counter", "'collections.Counter' is not a TFX component with an output 'examples'"),
    ],
)
def test_example_gen_that_is_none(spec, path, message):
    with pytest.raises(ConfigurationError, match=message):
        build(spec.model_copy(update={"data": Data(example_gen=path)}))


class LossyExampleGen(FileBasedExampleGen):
    """Writes an ExampleGen for Avro files as TFX's documentation does."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(avro_executor.Executor)


def test_executors_that_lose_zeros_are_refused(spec):
    data = Data(example_gen=f"{__name__}.LossyExampleGen", example_gen_args={"input_base": "/data"})
    with pytest.raises(ConfigurationError, match="turns each 0, 0.0, False and empty string into a missing value"):
        build(spec.model_copy(update={"data": data}))


def test_metric_that_does_not_exist(spec):
    with pytest.raises(
        ConfigurationError, match="there is no metric 'BinaryAcuracy' in Keras or TFMA; did you mean 'BinaryAcc"
    ):
        build(spec.model_copy(update={"evaluate": Evaluate(metrics={"BinaryAcuracy": Metric()})}))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("AUC", "'multi_label'; TFMA takes its own metric of this name: for Keras's, write module: and a subclass in it$"),
        ("SparseCategoricalAccuracy", "'multi_label'$"),
    ],
)
def test_arguments_that_a_metric_does_not_take(name, reason):
    """TFMA finds them after the training."""
    message = rf"^evaluate\.metrics\.{name}: cannot be made: .* got an unexpected keyword argument {reason}"
    with pytest.raises(ConfigurationError, match=message):
        tfx_pipeline.make_metrics_specs({name: Metric(config={"multi_label": True})})
    assert tfx_pipeline.make_metrics_specs({name: Metric(config={"multi_label": True}, module="own")})


def test_metrics_without_thresholds_refuse_no_model(spec):
    pipeline = build(spec.model_copy(update={"evaluate": Evaluate(metrics={"AUC": Metric()}), "push": Push()}))
    assert "model_blessing" not in node(pipeline, "Pusher").inputs


def test_latest_blessed_model_is_resolved_once_before_the_trainer(spec):
    evaluate = Evaluate(metrics={"AUC": Metric(change=Change(absolute=-0.1))})
    trainer = spec.trainer.model_copy(update={"base_model": BaseModelSpec(path="latest_blessed", freeze=["dense"])})
    pipeline = build(spec.model_copy(update={"trainer": trainer, "evaluate": evaluate}))
    assert ids(pipeline).count("latest-blessed-model") == 1
    assert ids(pipeline).index("latest-blessed-model") < ids(pipeline).index("Trainer")
    resolved = node(pipeline, "latest-blessed-model").outputs["model"]
    assert WarmStart.from_json(node(pipeline, "Trainer").exec_properties["warm_start"]).freeze == ["dense"]
    assert node(pipeline, "Trainer").inputs["base_model"] is node(pipeline, "Evaluator").inputs["baseline_model"] is resolved
    bounded = Evaluate(metrics={"AUC": Metric(lower_bound=0.5)})
    pipeline = build(spec.model_copy(update={"trainer": trainer, "evaluate": bounded}))
    assert node(pipeline, "Trainer").inputs["base_model"].type_name == "Model"
    assert "baseline_model" not in node(pipeline, "Evaluator").inputs


def test_base_model_at_a_path_is_imported_with_its_fingerprint(spec, tmp_path):
    def imported(path):
        trainer = spec.trainer.model_copy(update={"base_model": BaseModelSpec(path=path)})
        pipeline = build(spec.model_copy(update={"trainer": trainer}))
        assert node(pipeline, "Trainer").inputs["base_model"] is node(pipeline, "base-model").outputs["result"]
        return node(pipeline, "base-model")

    fingerprints = set()
    for value in (1.0, 2.0):
        (tmp_path / "x.keras").write_text(str(value))
        (artifact,) = imported(f"{tmp_path}/x.keras").outputs["result"].get()
        fingerprints.add(artifact.get_string_custom_property("fingerprint"))
    assert len(fingerprints) == 2
    assert imported("gs://bucket/model").exec_properties["artifact_uri"] == "gs://bucket/model"
    with pytest.raises(ConfigurationError, match="base_model: there is no model .*/nothing; write"):
        imported(f"{tmp_path}/nothing")


def test_metrics_that_the_model_was_compiled_with_are_not_evaluated(spec):
    """TFMA would give the losses another output's labels if there are several."""
    evaluate = Evaluate(metrics={"AUC": Metric()})
    (model,) = tfx_pipeline.make_eval_config(spec, evaluate, user_module.find(spec)).model_specs
    assert model_util.get_model_type(model, model_path="not looked at") == tfma.constants.TF_GENERIC


def test_the_type_of_a_model_that_a_run_fn_saves_is_for_tfma_to_find(spec):
    """Its preprocessing functions may be layers; losses have no label of their own."""
    module = dataclasses.replace(user_module.find(spec), train="run_fn")
    evaluate = Evaluate(label={"number": "digit", "even": "is_even"}, metrics={"AUC": Metric(output_name="even")})
    config = tfx_pipeline.make_eval_config(spec, evaluate, module)
    assert not config.model_specs[0].model_type
    assert config.options.HasField("include_default_metrics")
    assert not config.options.include_default_metrics.value


def test_the_trainer_gets_what_the_tuner_finds(spec):
    tune = Search(objective="val_loss", max_trials=2, space={"rate": ValueRange(min=0.1, max=1.0)})
    pipeline = build(spec.model_copy(update={"tune": tune}))
    assert ids(pipeline)[-3:] == ["Sharder", "Tuner", "Trainer"]
    tuner, trainer = node(pipeline, "Tuner"), node(pipeline, "Trainer")
    assert trainer.inputs["hyperparameters"] is tuner.outputs["best_hyperparameters"]
    assert tuner.inputs["examples"] is trainer.inputs["examples"]
    assert tuner.exec_properties["epochs"] is trainer.exec_properties["epochs"], "a parameter is that of both"
    for name in ("module_fingerprint", tfx_pipeline.FINGERPRINT):
        assert tuner.exec_properties[name] == trainer.exec_properties[name]
    assert Search.model_validate_json(tuner.exec_properties["tune"]) == tune
    assert "Tuner" not in ids(build(spec))
