"""Compiles pipelines that are written in Python for Kubeflow."""

from typing import ClassVar

import pytest
import tensorflow_model_analysis as tfma
from by_hand import latest_blessed, make_model, make_trainer, trained, two_trainers
from compiled_for_kubeflow import TARGET, executors
from tfx import types
from tfx.components import CsvExampleGen, InfraValidator, Pusher
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.components.common import importer, resolver
from tfx.dsl.experimental.conditionals import conditional
from tfx.dsl.input_resolution.strategies import latest_artifact_strategy
from tfx.orchestration import data_types
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import infra_validator_pb2, pusher_pb2
from tfx.types import channel, component_spec, standard_artifacts

from tfx_distribute.components import Evaluator, Search, Trainer, Tuner, ValueRange
from tfx_distribute.components.launchers import registry
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.targets.kubeflow import compiler
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.errors import ConfigurationError

GOOGLE = KubeflowSettings(image="registry.example.com/model:1", pipeline_root="gs://bucket/root")


class Trips(base_component.BaseComponent):
    """Reads a database, without a class of TFX's ExampleGens."""

    class Spec(types.ComponentSpec):
        PARAMETERS: ClassVar = {}
        INPUTS: ClassVar = {}
        OUTPUTS: ClassVar = {"examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)}

    SPEC_CLASS = Spec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(base_executor.EmptyExecutor)

    def __init__(self) -> None:
        super().__init__(self.Spec(examples=types.Channel(type=standard_artifacts.Examples)))


class VersionedTrips(Trips):
    """Knows when the table has changed."""

    last_change = "2026-11-01"

    @property
    def data_version(self) -> str:
        return self.last_change


def compile_by_hand(*steps, **resources):
    """Compiles a pipeline of components; `resources` has the machines of some."""
    handwritten = Pipeline("by-hand", "gs://bucket/root", components=list(steps), enable_cache=True)
    machines = {name: MachineSpec(**machine) for name, machine in resources.items()}
    return compiler.compile_pipeline(handwritten, GOOGLE, machines)


def compile_one(example_gen: Trips) -> dict:
    """Compiles a pipeline in Python; returns the task of its only component."""
    package = compile_by_hand(example_gen)
    task = package.pipeline["root"]["dag"]["tasks"][example_gen.id]
    warned = any(f"{example_gen.id}: declares no data_version" in warning for warning in package.warnings)
    assert warned == ("cachingOptions" not in task)
    return task


def test_a_query_runs_each_time_unless_it_declares_a_version(monkeypatch):
    assert "cachingOptions" not in compile_one(Trips())
    unknown = Trips()
    unknown.data_version = ""
    assert "cachingOptions" not in compile_one(unknown)
    trips = VersionedTrips()
    before = compile_one(trips)
    assert before["cachingOptions"] == {"enableCache": True}
    assert "fingerprint" not in trips.spec.exec_properties, "the pipeline is as it was"
    assert compile_one(VersionedTrips()) == before
    monkeypatch.setattr(VersionedTrips, "last_change", "2026-11-02")
    changed = compile_one(VersionedTrips())
    assert changed["inputs"] != before["inputs"]
    monkeypatch.setattr("tfx_distribute.trainer_module.user_code.fingerprint.of_imports", lambda *_: "of changed code")
    assert compile_one(VersionedTrips())["inputs"] != changed["inputs"]
    stock = Trips()
    stock.data_version = "2026-11-01"
    assert compile_one(stock)["cachingOptions"] == {"enableCache": True}


def test_names_are_legal_unique_and_not_those_of_the_backend():
    named = [make_model(size=1).with_id(name) for name in ("executor", "reader", "reader_driver", "a-b", "a_b", "a.b")]
    package = compile_by_hand(*named, a_b={"memory": "4Gi"})
    assert sorted(package.pipeline["root"]["dag"]["tasks"]) == [
        *("a-b", "a-b-2", "a-b-3", "executor-2", "reader", "reader-driver-2")
    ]
    large = [step for step in executors(package.pipeline).values() if "resources" in step["container"]]
    assert [step["container"]["resources"]["resourceMemoryLimit"] for step in large] == ["4Gi"]


def test_a_trainer_written_by_hand_gets_the_settings_of_the_target():
    handwritten = trained("minio://mlpipeline/root")
    before = {component.id: dict(component.exec_properties) for component in handwritten.components}
    kubeflow = KubeflowSettings(**{**TARGET, "pipeline_root": "minio://mlpipeline/root"})
    pipeline = compiler.compile_pipeline(handwritten, kubeflow, {"Trainer": MachineSpec(cpu="8")}).pipeline
    inputs = pipeline["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"]
    launcher = registry.from_json(inputs["launcher"]["runtimeValue"]["constant"])
    assert (launcher.training, launcher.training_dir) == ("elsewhere", "/shared/training"), "two workers"
    assert inputs["checkpoint_dir"]["runtimeValue"]["constant"] == "/shared/training/checkpoints"
    assert executors(pipeline)["Trainer_executor"]["container"]["resources"]["resourceCpuLimit"] == "500m", "its step waits"
    assert launcher.worker["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "8"
    assert {component.id: dict(component.exec_properties) for component in handwritten.components} == before


def test_each_trainer_has_its_machine_and_its_folder():
    machines = {"Small": {"cpu": 2, "memory": "4Gi"}, "Trainer": {"cpu": 8, "memory": "32Gi"}}
    pipeline = compile_by_hand(*two_trainers(), **machines).pipeline
    for name, cpu in (("Small", "2"), ("Large", "8")):
        assert executors(pipeline)[f"{name}_executor"]["container"]["resources"]["resourceCpuLimit"] == cpu
        inputs = pipeline["root"]["dag"]["tasks"][name]["inputs"]["parameters"]
        launcher = registry.from_json(inputs["launcher"]["runtimeValue"]["constant"])
        assert launcher.worker["spec"]["containers"][0]["resources"]["limits"]["cpu"] == cpu, "a run may ask for pods"
        folder = inputs["checkpoint_dir"]["runtimeValue"]["constant"]
        assert folder == f"gs://bucket/root/by-hand/checkpoints/{name}"
    with pytest.raises(ConfigurationError, match=r"resources.Trainer: the pipeline has no such component"):
        compile_by_hand(two_trainers()[0], Trainer={"cpu": 8})


def test_defaults_replace_those_of_the_same_parameters():
    def read_defaults(pipeline, **defaults):
        package = compiler.compile_pipeline(pipeline, GOOGLE, {}, defaults)
        declared = package.pipeline["root"]["inputDefinitions"]["parameters"]
        return {name: parameter.get("defaultValue") for name, parameter in declared.items()}

    assert read_defaults(trained("gs://b"), num_workers=4) == {"strategy": "multi_worker_mirrored", "num_workers": 4}
    with pytest.raises(
        ConfigurationError, match="^defaults: the pipeline has no RuntimeParameter 'workers'; it has strategy"
    ):
        read_defaults(trained("gs://b"), workers=4)

    def sized(*defaults):
        sizes = [data_types.RuntimeParameter("size", int, default=default) for default in defaults]
        models = [make_model(size=size).with_id(f"model{number}") for number, size in enumerate(sizes)]
        return Pipeline("by-hand", "gs://bucket/root", components=models)

    assert read_defaults(sized(None, 2, 2)) == {"size": 2}
    assert read_defaults(sized(1, 2), size=3) == {"size": 3}
    with pytest.raises(
        ConfigurationError, match="^RuntimeParameter 'size': .* with the defaults 1 and 2; write one default"
    ):
        read_defaults(sized(1, 2))


def test_trials_of_a_pipeline_without_a_trainer_have_its_machine():
    examples = two_trainers()[0]
    search = Search(objective="val_loss", space={"learning_rate": ValueRange(min=0.1, max=1.0)}, max_trials=1)
    known = {"build_model": "model.build_model", "label": "digit", "epochs": 1, "hparams": {"learning_rate": 0.1}}
    tuner = Tuner(search, examples=examples.outputs["examples"], **known)
    package = compile_by_hand(examples, tuner, Trainer={"cpu": 8, "memory": "32Gi"})
    assert executors(package.pipeline)["Tuner_executor"]["container"]["resources"]["resourceCpuLimit"] == "8"


def test_files_are_inspected_after_what_makes_them():
    download, examples = make_model(size=1).with_id("download"), CsvExampleGen("gs://bucket/data")
    examples.add_upstream_node(download)
    tasks = compile_by_hand(download, examples).pipeline["root"]["dag"]["tasks"]
    assert tasks["CsvExampleGen-input"]["dependentTasks"] == ["download"]
    assert tasks["CsvExampleGen"]["dependentTasks"] == ["CsvExampleGen-input", "download"]


def test_the_latest_blessed_model_is_looked_up_when_the_pipeline_says():
    first, last, examples = make_model(size=1).with_id("first"), make_model(size=1).with_id("last"), CsvExampleGen("gs://b")
    kinds = {"mine": standard_artifacts.Model, "its_blessing": standard_artifacts.ModelBlessing}
    model, other = (
        latest_blessed(**{name: channel.Channel(type=kind) for name, kind in kinds.items()}),
        latest_blessed("other"),
    )
    model.add_upstream_node(first)
    other.add_upstream_node(model)
    last.add_upstream_node(other)
    tuned = make_trainer(examples, base_model=model.outputs["mine"])
    tasks = compile_by_hand(first, examples, model, tuned, other, last).pipeline["root"]["dag"]["tasks"]
    read = tasks["Trainer"]["inputs"]["artifacts"]["base_model"]["taskOutputArtifact"]
    assert read == {"producerTask": "blessed-import", "outputArtifactKey": "mine"}
    assert tasks["blessed"]["dependentTasks"] == ["first"]
    assert tasks["blessed-import"]["dependentTasks"] == ["blessed"]
    assert tasks["Trainer"]["dependentTasks"] == ["CsvExampleGen", "blessed-import"]
    assert tasks["other"]["dependentTasks"] == ["blessed-import"]
    assert tasks["last"]["dependentTasks"] == ["other-import"]


def test_the_latest_artifact_of_a_type_is_looked_up():
    latest = resolver.Resolver(
        strategy_class=latest_artifact_strategy.LatestArtifactStrategy,
        weights=channel.Channel(type=standard_artifacts.Model),
    ).with_id("latest-model")
    examples = CsvExampleGen("gs://bucket/data")
    package = compile_by_hand(examples, latest, make_trainer(examples, base_model=latest.outputs["weights"]))
    read = package.pipeline["root"]["dag"]["tasks"]["Trainer"]["inputs"]["artifacts"]["base_model"]["taskOutputArtifact"]
    assert read == {"producerTask": "latest-model-import", "outputArtifactKey": "weights"}
    assert package.pipeline["root"]["dag"]["tasks"]["latest-model-import"]["dependentTasks"] == ["latest-model"]
    step = package.pipeline["deploymentSpec"]["executors"]["latest-model_executor"]["container"]
    assert step["args"][0] == "latest-artifact"
    assert step["args"][step["args"].index("--type") + 1] == "tfx.Model"


def test_what_tfx_cannot_compile_is_refused():
    spec = infra_validator_pb2.ServingSpec(kubernetes={}, tensorflow_serving={"tags": ["latest"]}, model_name="m")
    validator = InfraValidator(model=channel.Channel(type=standard_artifacts.Model), serving_spec=spec)
    inner = Pipeline("inner", "gs://bucket/inner", components=[CsvExampleGen("gs://bucket/data")])
    for node in (validator, inner):
        with pytest.raises(ConfigurationError, match="knows no subpipelines, no ForEach, no InfraValidator"):
            compile_by_hand(node)


def test_a_name_that_no_platform_takes():
    with pytest.raises(ConfigurationError, match=r"^pipeline_name: .* not 'My_houses'; write 'my-houses'$"):
        compiler.compile_pipeline(
            Pipeline("My_houses", "gs://bucket/root", components=[Trips()]), KubeflowSettings(**TARGET), {}
        )


def test_a_module_file_that_tfx_would_write_to_a_root_that_it_cannot_reach(tmp_path):
    (tmp_path / "model.py").write_text("def run_fn(fn_args): ...\n")
    examples = Trips()
    trainer = Trainer(module_file=str(tmp_path / "model.py"), examples=examples.outputs["examples"], train_steps=1)
    for root in ("minio://bucket/root", str(tmp_path / "root")):
        handwritten = Pipeline("houses", root, components=[examples, trainer])
        with pytest.raises(
            ConfigurationError, match=rf"^Trainer.module_file: .* the pipeline_root {root} .*; name the func"
        ):
            compiler.compile_pipeline(handwritten, KubeflowSettings(**TARGET), {})


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"strategy": "mirored"}, "^strategy: .*'mirored'"),
        ({"num_workers": "three"}, "^Trainer: the default of a parameter is wrong: .*'three'"),
        ({"strategy": "one_device"}, "num_workers"),
    ],
)
def test_defaults_that_no_run_could_have(defaults, message):
    examples = Trips()
    parameters = {
        "strategy": data_types.RuntimeParameter("strategy", str, default="multi_worker_mirrored"),
        "num_workers": data_types.RuntimeParameter("num_workers", int, default=2),
    }
    handwritten = Pipeline("houses", "gs://bucket/root", components=[examples, make_trainer(examples, **parameters)])
    with pytest.raises(ConfigurationError, match=message):
        compiler.compile_pipeline(handwritten, KubeflowSettings(**TARGET), {}, defaults)


def test_a_parameter_without_a_default_gets_its_value_in_each_run():
    examples = Trips()
    strategy = data_types.RuntimeParameter("strategy", str)
    compile_by_hand(examples, make_trainer(examples, strategy=strategy, num_workers=2))


def test_values_that_tfx_does_not_compile_are_refused():
    model = make_model(size=1).with_id("first")
    dynamic = make_model(size=model.outputs["size_of_model"].future()[0].value).with_id("second")
    with pytest.raises(ConfigurationError, match=r"^second: depends on .*, which is not in the pipeline"):
        compile_by_hand(model, dynamic)
    model = make_model(size=1).with_id("first")
    with conditional.Cond(model.outputs["size_of_model"].future()[0].value > 1):
        conditional_node = make_model(size=2).with_id("third")
    with pytest.raises(ConfigurationError, match="placeholder.* no conditions on values"):
        compile_by_hand(model, conditional_node)


def test_resolvers_of_one_producer_are_refused_if_there_are_several():
    channels = {
        "model": channel.Channel(type=standard_artifacts.Model, producer_component_id="Small"),
        "model_blessing": channel.Channel(type=standard_artifacts.ModelBlessing),
    }
    compile_by_hand(*two_trainers(), latest_blessed(**channels))  # whose model is blessed, decides
    examples, small, large = two_trainers()
    evaluators = [
        Evaluator(examples.outputs["examples"], trainer.outputs["model"], eval_config=tfma.EvalConfig()).with_id(
            f"Evaluator.{trainer.id}"
        )
        for trainer in (small, large)
    ]
    with pytest.raises(
        ConfigurationError,
        match=r"^blessed: model is that of Small alone, .* ModelBlessing of Evaluator.Large, Evaluator.Small; leave",
    ):
        compile_by_hand(examples, latest_blessed(**channels), small, large, *evaluators)


def test_what_kubeflow_would_not_do_is_refused():
    found = latest_blessed()
    destination = pusher_pb2.PushDestination(filesystem={"base_directory": "gs://bucket/serving"})
    pusher = Pusher(found.outputs["model"], found.outputs["model_blessing"], push_destination=destination)
    with pytest.raises(ConfigurationError, match=r"^Pusher: depends on blessed-model-blessing-resolver, .* leave it out"):
        compile_by_hand(found, pusher)
    latest = resolver.Resolver(
        strategy_class=latest_artifact_strategy.LatestArtifactStrategy,
        model=channel.Channel(type=standard_artifacts.Model),
        schema=channel.Channel(type=standard_artifacts.Schema),
    ).with_id("latest-two")
    with pytest.raises(ConfigurationError, match=r"latest-two: Kubeflow Pipelines has no resolvers; .* one type"):
        compile_by_hand(latest)
    imported = importer.Importer(source_uri="/models/1", artifact_type=standard_artifacts.Model).with_id("import")
    with pytest.raises(ConfigurationError, match="import: imports '/models/1', which a cluster cannot read"):
        compile_by_hand(imported)
