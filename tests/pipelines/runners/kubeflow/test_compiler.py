"""Reads compiled pipelines as the backend of Kubeflow Pipelines does."""

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from click.testing import CliRunner
from tfx import types
from tfx.components.example_gen.component import QueryBasedExampleGen
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.orchestration import data_types
from tfx.orchestration import pipeline as tfx_orchestration
from tfx.proto import example_gen_pb2
from tfx.types import component_spec, standard_artifacts

from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.runners import tfx_pipeline
from tfx_distribute.pipelines.runners.kubeflow import compiler as kubeflow_compiler
from tfx_distribute.pipelines.runners.kubeflow.settings import KubeflowSettings
from tfx_distribute.pipelines.runners.kubeflow.target import KubeflowTarget
from tfx_distribute.pipelines.spec import loader, user_module
from tfx_distribute.pipelines.spec import machines as spec_machines
from tfx_distribute.trainer_module.errors import ConfigurationError

LEGAL = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]*")  # Argo's tasks and templates
REPOSITORY = Path(__file__).resolve().parents[4]
TARGET = {
    "image": "registry.example.com/team/model:1",
    "pipeline_root": "s3://bucket/root",
    "platform": "gke",
    "training_dir": "/shared/training",
    "volumes": [{"claim": "shared", "mount_path": "/shared"}],
    "secrets": [{"name": "s3", "env": {"AWS_ACCESS_KEY_ID": "accesskey"}}],
    "labels": {"team": "a"},
    "queue": "team-a",
}
RESOURCES = {
    "default": {"cpu": "500m", "memory": "2Gi"},
    "CsvExampleGen": {"cpu": 2, "memory": "8Gi"},
    "Trainer": {"cpu": 8, "memory": "32Gi", "accelerator": "nvidia-l4", "accelerator_count": 2, "spot": True},
    "TrainerStep": {"memory": "2Gi"},
}

TUNE = {
    "objective": "val_accuracy",
    "max_trials": 3,
    "space": {"learning_rate": {"min": 0.0001, "max": 0.1, "sampling": "log"}},
}


def project(folder: Path, example: str, **changes: object) -> Path:
    """Copies an example, with Kubeflow as a target; returns its pipeline file."""
    shutil.copytree(REPOSITORY / "examples" / example, folder, dirs_exist_ok=True)
    file = folder / "pipeline.yaml"
    document = yaml.safe_load(file.read_text())
    document |= {"targets": {"kubeflow": TARGET}, "resources": RESOURCES, "push": {"directory": "/shared/serving"}}
    if example == "taxi":
        document["data"]["csv"] = "/shared/data"
    else:
        document["resources"] = {name: node for name, node in RESOURCES.items() if name != "CsvExampleGen"}
    file.write_text(yaml.safe_dump(document | changes))
    return file


def compiled(file: Path, *words: str):
    spec = loader.override(loader.load(file), loader.parse_parameters(words))
    return KubeflowTarget(spec).compile(user_module.find(spec))


@pytest.fixture(scope="module")
def taxi_file(tmp_path_factory):
    return project(tmp_path_factory.mktemp("taxi"), "taxi")


@pytest.fixture(scope="module")
def taxi(taxi_file):
    """With CSV files, a baseline, and training in the step."""
    return compiled(taxi_file)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """With an ExampleGen of its own, and training as a TFJob."""
    return compiled(project(tmp_path_factory.mktemp("digits"), "digits"), "strategy=multi_worker_mirrored", "num_workers=4")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """With a base model at an address."""
    return compiled(project(tmp_path_factory.mktemp("tuned"), "digits"), "base_model=gs://bucket/model")


@pytest.fixture(params=["taxi", "digits", "tuned"])
def package(request):
    return request.getfixturevalue(request.param)


def dags(pipeline):
    yield pipeline["root"], pipeline["root"]["dag"]
    yield from ((component, component["dag"]) for component in pipeline["components"].values() if "dag" in component)


def executors(pipeline):
    return pipeline["deploymentSpec"]["executors"]


def test_newest_kubeflow_reads_all_of_it(package, tmp_path):
    (tmp_path / "p.yaml").write_text(package.to_text())
    words = [REPOSITORY / ".venv-kfp/bin/python", REPOSITORY / "tests/fakes/strict_kfp.py", tmp_path / "p.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(executors(package.pipeline))} executors" in done.stdout


def test_kfp_of_tfx_takes_it_to_submit(package, tmp_path):
    from kfp.client import client

    (tmp_path / "p.yaml").write_text(package.to_text())
    document = client._extract_pipeline_yaml(str(tmp_path / "p.yaml"))
    assert document.to_dict() == {"pipeline_spec": package.pipeline, "platform_spec": package.platform}


def test_text_like_a_number_is_text_for_every_parser_of_yaml():
    """Kubeflow's takes all of these for numbers or dates unless they are quoted."""
    words = ["12345e7", "0o17", "08", "1.5e3", "2026-1-5", "-1e3", ".5e1", "+8"]
    text = kubeflow_compiler.Package({"labels": words, "name": "digits 1"}, {}).to_text()
    assert [line[2:] for line in text.splitlines() if line.startswith("- ")] == [f"'{word}'" for word in words]
    assert next(iter(yaml.safe_load_all(text))) == {"labels": words, "name": "digits 1"}
    assert "name: digits 1" in text


def test_names_are_legal_and_the_same_everywhere(package):
    pipeline = package.pipeline
    assert pipeline["schemaVersion"].startswith("2.1")
    for _, dag in dags(pipeline):
        for name, task in dag["tasks"].items():
            assert LEGAL.fullmatch(name), name
            assert task["taskInfo"]["name"] == name
            assert set(task.get("dependentTasks", ())) <= set(dag["tasks"])
            component = pipeline["components"][task["componentRef"]["name"]]
            assert LEGAL.fullmatch(task["componentRef"]["name"])
            assert "dag" in component or component["executorLabel"] in executors(pipeline)


def test_every_input_is_given_by_somebody(package):
    pipeline = package.pipeline
    for outer, dag in dags(pipeline):
        outer_parameters = set(outer.get("inputDefinitions", {}).get("parameters", {}))
        for task in dag["tasks"].values():
            component = pipeline["components"][task["componentRef"]["name"]]
            declared = component.get("inputDefinitions", {})
            inputs = task.get("inputs", {})
            for kind in ("artifacts", "parameters"):
                assert set(declared.get(kind, {})) == set(inputs.get(kind, {}))
            sources = [*inputs.get("artifacts", {}).values(), *inputs.get("parameters", {}).values()]
            for source in sources:
                if "componentInputParameter" in source:
                    assert source["componentInputParameter"] in outer_parameters
                for output in (source.get("taskOutputArtifact"), source.get("taskOutputParameter")):
                    if output:
                        producer = dag["tasks"][output["producerTask"]]["componentRef"]["name"]
                        outputs = pipeline["components"][producer]["outputDefinitions"]
                        kind = "artifacts" if "outputArtifactKey" in output else "parameters"
                        key = output.get("outputArtifactKey") or output.get("outputParameterKey")
                        assert key in outputs[kind]


def test_nothing_is_left_that_the_backend_does_not_do(package):
    kinds = {kind for executor in executors(package.pipeline).values() for kind in executor}
    assert kinds <= {"container", "importer"}
    text = package.to_text()
    for word in ("resolver:", "lifecycle", "constantValue", "&id", "tfx.orchestration.kubeflow"):
        assert word not in text


def test_all_parameters_have_their_defaults(taxi, taxi_file):
    declared = taxi.pipeline["root"]["inputDefinitions"]["parameters"]
    values = tfx_pipeline.get_parameter_values(loader.load(taxi_file))
    assert {name: parameter["defaultValue"] for name, parameter in declared.items()} == values
    assert all(parameter["isOptional"] for parameter in declared.values())
    assert (declared["num_shards"]["defaultValue"], declared["mesh"]["defaultValue"]) == (0, ""), "which TFX loses"


def test_given_parameters_are_the_defaults(digits):
    declared = digits.pipeline["root"]["inputDefinitions"]["parameters"]
    assert declared["num_workers"]["defaultValue"] == 4


def test_changed_files_are_another_key_of_the_cache(taxi):
    tasks = taxi.pipeline["root"]["dag"]["tasks"]
    assert "cachingOptions" not in tasks["CsvExampleGen-input"]
    assert tasks["CsvExampleGen"]["cachingOptions"] == {"enableCache": True}
    resolved = {"producerTask": "CsvExampleGen-input", "outputParameterKey": "resolved_input"}
    assert tasks["CsvExampleGen"]["inputs"]["parameters"]["resolved_input"] == {"taskOutputParameter": resolved}


def test_data_of_a_declared_version_are_not_read_again(digits):
    tasks = digits.pipeline["root"]["dag"]["tasks"]
    cached = {name for name, task in tasks.items() if task.get("cachingOptions") == {"enableCache": True}}
    assert set(tasks) - cached == {"Pusher"}, "which sees what is served"
    parameter = tasks["DigitsExampleGen"]["inputs"]["parameters"]["fingerprint"]["runtimeValue"]["constant"]
    assert json.loads(parameter)["content"].endswith(" 1"), "after the hash of its code"


class Trips(QueryBasedExampleGen):
    """Reads a database."""

    def __init__(self) -> None:
        split = example_gen_pb2.Input.Split(name="all", pattern="SELECT * FROM trips")
        super().__init__(input_config=example_gen_pb2.Input(splits=[split]))


class VersionedTrips(Trips):
    """Knows when the table has changed."""

    last_change = "2026-11-01"

    @property
    def data_version(self) -> str:
        return self.last_change


def compile_one(example_gen: Trips) -> dict:
    """Compiles a pipeline in Python; returns the task of its only component."""
    handwritten = tfx_orchestration.Pipeline("by-hand", "gs://bucket/root", components=[example_gen], enable_cache=True)
    kubeflow = KubeflowSettings(image="registry.example.com/model:1", pipeline_root="gs://bucket/root")
    package = kubeflow_compiler.compile_pipeline(handwritten, kubeflow, {})
    task = package.pipeline["root"]["dag"]["tasks"][example_gen.id]
    warned = any(f"{example_gen.id}: declares no data_version" in warning for warning in package.warnings)
    assert warned == ("cachingOptions" not in task)
    return task


def test_a_query_runs_each_time_unless_it_declares_a_version(monkeypatch):
    assert "cachingOptions" not in compile_one(Trips())
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


@pytest.mark.parametrize("version", ["", 1, 20261101.5])
def test_what_is_not_a_version_of_data(version):
    trips = Trips()
    trips.data_version = version
    with pytest.raises(ConfigurationError, match=r"^Trips.data_version: .* is not a version; write a text"):
        compile_one(trips)


def test_a_version_of_data_that_cannot_be_read(monkeypatch):
    monkeypatch.delattr(VersionedTrips, "last_change")
    with pytest.raises(
        ConfigurationError, match=r"^VersionedTrips.data_version: cannot be read: AttributeError: .*last_change"
    ):
        compile_one(VersionedTrips())


class OwnExampleGen(base_component.BaseComponent):
    """Reads a web service, without a class of TFX's ExampleGens."""

    class Spec(types.ComponentSpec):
        PARAMETERS: ClassVar = {}
        INPUTS: ClassVar = {}
        OUTPUTS: ClassVar = {"examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)}

    SPEC_CLASS = Spec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(base_executor.EmptyExecutor)

    def __init__(self) -> None:
        super().__init__(self.Spec(examples=types.Channel(type=standard_artifacts.Examples)))


def test_a_component_that_makes_examples_of_nothing_runs_each_time():
    assert "cachingOptions" not in compile_one(OwnExampleGen())


def test_resources_in_both_generations(taxi):
    trainer = executors(taxi.pipeline)["Trainer_executor"]["container"]["resources"]
    assert trainer == {
        "resourceCpuLimit": "8",
        "cpuLimit": 8.0,
        "resourceMemoryLimit": "32Gi",
        "memoryLimit": 34.359738368,
        "accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "2", "type": "nvidia.com/gpu", "count": 2},
    }
    example_gen = executors(taxi.pipeline)["CsvExampleGen_executor"]["container"]["resources"]
    assert example_gen["resourceMemoryLimit"] == "8Gi", "which TFX drops"
    assert executors(taxi.pipeline)["Evaluator_executor"]["container"]["resources"]["cpuLimit"] == 0.5


@pytest.mark.parametrize(("name", "retries"), [("taxi", 3), ("digits", 1)], ids=["on spot machines", "that waits"])
def test_a_step_is_tried_again_however_long_it_ran(name, retries, request):
    tasks = request.getfixturevalue(name).pipeline["root"]["dag"]["tasks"]
    (policy,) = [task["retryPolicy"] for task in tasks.values() if "retryPolicy" in task]
    assert policy == tasks["Trainer"]["retryPolicy"]
    assert policy["maxRetryCount"] == retries
    # The backend takes what is missing as 0, and counts from the first try's start.
    assert (policy["backoffDuration"], policy["backoffFactor"]) == ("0s", 2)
    assert int(policy["backoffMaxDuration"].removesuffix("s")) > 30 * 24 * 3600


def test_a_role_that_was_given_gpus_knows_it(taxi, digits):
    def requested(package, name):
        environment = executors(package.pipeline)[f"{name}_executor"]["container"].get("env", [])
        return {variable["name"]: variable["value"] for variable in environment}

    grace = {"TFX_DISTRIBUTE_TERMINATION_GRACE_SECONDS": "15"}  # of a spot machine
    assert requested(taxi, "Trainer") == {"TFX_DISTRIBUTE_REQUESTED_GPUS": "2", **grace}
    assert requested(taxi, "Transform") == requested(digits, "Trainer") == {}, "the pods of a TFJob have it themselves"
    parameter = digits.pipeline["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"]["launcher"]
    launcher = json.loads(parameter["runtimeValue"]["constant"])
    (worker,), (server,) = (launcher[role]["spec"]["containers"] for role in ("worker", "parameter_server"))
    assert {"name": "TFX_DISTRIBUTE_REQUESTED_GPUS", "value": "2"} in worker["env"]
    assert "TFX_DISTRIBUTE_REQUESTED_GPUS" not in str(server)


@pytest.mark.parametrize("words", [(), ("strategy=multi_worker_mirrored", "num_workers=2")])
def test_a_search_has_the_machine_and_the_launcher_of_the_trainer(tmp_path, words):
    package = compiled(project(tmp_path, "digits", tune=TUNE), *words)
    tasks = package.pipeline["root"]["dag"]["tasks"]
    executors = package.pipeline["deploymentSpec"]["executors"]
    configs = package.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    tuner, trainer = (executors[f"{name}_executor"]["container"] for name in ("Tuner", "Trainer"))
    assert tuner["resources"] == trainer["resources"]
    assert tuner.get("env") == trainer.get("env")
    assert configs["Tuner_executor"] == configs["Trainer_executor"]
    assert tasks["Tuner"]["retryPolicy"] == tasks["Trainer"]["retryPolicy"]
    tuner_inputs, trainer_inputs = (tasks[name]["inputs"]["parameters"] for name in ("Tuner", "Trainer"))
    folders = [inputs.pop("checkpoint_dir")["runtimeValue"]["constant"] for inputs in (tuner_inputs, trainer_inputs)]
    assert folders == ["/shared/training/checkpoints"] * 2
    assert {name: tuner_inputs[name] for name in trainer_inputs if name in tuner_inputs} == {
        name: value for name, value in trainer_inputs.items() if name != "custom_config"
    }
    assert set(tuner_inputs) - set(trainer_inputs) == {"tune"}
    assert tasks["Trainer"]["inputs"]["artifacts"]["hyperparameters"]["taskOutputArtifact"] == {
        "outputArtifactKey": "best_hyperparameters",
        "producerTask": "Tuner",
    }


def test_a_step_that_only_waits_is_small(digits):
    resources = executors(digits.pipeline)["Trainer_executor"]["container"]["resources"]
    assert (resources["resourceCpuLimit"], resources["resourceMemoryLimit"]) == ("500m", "2Gi"), "the memory is its own"
    assert "accelerator" not in resources
    config = digits.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["Trainer_executor"]
    assert not {"nodeSelector", "tolerations", "emptyDirMounts"} & set(config)
    parameter = digits.pipeline["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"]["launcher"]
    launcher = json.loads(parameter["runtimeValue"]["constant"])
    assert launcher["training"] == "pods", "whatever a run asks for: this step has no accelerator"
    worker = launcher["worker"]["spec"]
    assert worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert worker["nodeSelector"]["cloud.google.com/gke-accelerator"] == "nvidia-l4"


def test_base_model_is_imported_or_looked_up(tuned, digits, tmp_path):
    def reads(package):
        artifact = package.pipeline["root"]["dag"]["tasks"]["Trainer"]["inputs"]["artifacts"].get("base_model", {})
        return artifact.get("taskOutputArtifact")

    assert reads(tuned) == {"producerTask": "base-model", "outputArtifactKey": "result"}
    importer = executors(tuned.pipeline)["base-model_executor"]["importer"]
    assert importer["artifactUri"] == {"constant": "gs://bucket/model"}
    assert reads(digits) is None
    latest = compiled(project(tmp_path, "digits"), "base_model=latest_blessed")
    assert reads(latest) == {"producerTask": "latest-blessed-model-import", "outputArtifactKey": "model"}
    for address in ("/shared/model", "oci://registry/model"):
        with pytest.raises(
            ConfigurationError, match=f"trainer.base_model: Kubeflow Pipelines cannot import {address}; write"
        ):
            compiled(project(tmp_path, "digits"), f"base_model={address}")


@pytest.mark.parametrize("name", ["taxi", "digits"])
def test_the_whole_platform_document(name, request, expected):
    expected(f"platform/{name}", request.getfixturevalue(name).platform)


def test_the_same_again_is_the_same(taxi, taxi_file, command, tmp_path):
    again = tmp_path / "again.yaml"
    done = command("compile", taxi_file, "--target", "kubeflow", "-o", again, new_process=True)
    assert done.code == 0, done.output
    assert (tmp_path / "again.yaml").read_text() == taxi.to_text()
    assert done.output.splitlines()[-1] == f"{tmp_path}/again.yaml: taxi, 12 steps"


def test_what_is_not_a_file_is_written_to_and_never_replaced(taxi, taxi_file, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_text)
        done = CliRunner().invoke(main, ["compile", str(taxi_file), "--target", "kubeflow", "-o", str(pipe)])
        if done.exit_code:
            pipe.write_text("")  # its reader waits for a writer
        assert (done.exit_code, pipe.is_fifo()) == (0, True), done.output
        assert read.result(timeout=60) == taxi.to_text()
    done = CliRunner().invoke(main, ["compile", str(taxi_file), "--target", "kubeflow", "-o", "-"])
    assert (done.exit_code, done.stdout) == (0, taxi.to_text())


def test_a_pipeline_of_tfx_written_by_hand():
    """Underscores of function components are replaced; legal names are kept."""
    from by_hand import make_model
    from tfx.orchestration import pipeline

    from tfx_distribute.pipelines.runners.kubeflow import compiler as runner
    from tfx_distribute.pipelines.runners.kubeflow.settings import KubeflowSettings

    size = data_types.RuntimeParameter("size", int, default=0)
    steps = [make_model(size=size), make_model(size=1).with_id("make-model"), make_model(size=1).with_id("make.model")]
    handwritten = pipeline.Pipeline("by-hand", "gs://bucket/root", components=steps)
    kubeflow = KubeflowSettings(image="registry.example.com/model:1", pipeline_root="gs://bucket/root")
    package = runner.compile_pipeline(handwritten, kubeflow, {"make_model": spec_machines.MachineSpec(memory="4Gi")})
    tasks = package.pipeline["root"]["dag"]["tasks"]
    assert sorted(tasks) == ["make-model", "make-model-2", "make-model-3"]
    assert package.pipeline["root"]["inputDefinitions"]["parameters"]["size"]["defaultValue"] == 0
    (first,) = [task for task in tasks.values() if "componentInputParameter" in task["inputs"]["parameters"]["size"]]
    label = package.pipeline["components"][first["componentRef"]["name"]]["executorLabel"]
    assert executors(package.pipeline)[label]["container"]["resources"]["resourceMemoryLimit"] == "4Gi"


def test_names_that_the_backend_has_itself():
    from by_hand import make_model

    named = [make_model(size=1).with_id(name) for name in ("executor", "reader", "reader_driver")]
    tasks = by_hand(*named).pipeline["root"]["dag"]["tasks"]
    assert sorted(tasks) == ["executor-2", "reader", "reader-driver-2"]


def test_a_trainer_written_by_hand_gets_the_settings_of_the_target():
    from by_hand import trained

    from tfx_distribute.components.launchers import settings
    from tfx_distribute.pipelines.runners.kubeflow import compiler as runner
    from tfx_distribute.pipelines.runners.kubeflow.settings import KubeflowSettings

    handwritten = trained("minio://mlpipeline/root")
    before = {component.id: dict(component.exec_properties) for component in handwritten.components}
    kubeflow = KubeflowSettings(**{**TARGET, "pipeline_root": "minio://mlpipeline/root"})
    pipeline = runner.compile_pipeline(handwritten, kubeflow, {"Trainer": spec_machines.MachineSpec(cpu="8")}).pipeline
    inputs = pipeline["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"]
    launcher = settings.from_json(inputs["launcher"]["runtimeValue"]["constant"])
    assert (launcher.training, launcher.training_dir) == ("pods", "/shared/training"), "two workers"
    assert inputs["checkpoint_dir"]["runtimeValue"]["constant"] == "/shared/training/checkpoints"
    assert executors(pipeline)["Trainer_executor"]["container"]["resources"]["resourceCpuLimit"] == "500m", "its step waits"
    assert launcher.worker["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "8"
    assert {component.id: dict(component.exec_properties) for component in handwritten.components} == before


def by_hand(*steps, **resources):
    handwritten = tfx_orchestration.Pipeline("by-hand", "gs://bucket/root", components=list(steps))
    kubeflow = KubeflowSettings(image="registry.example.com/model:1", pipeline_root="gs://bucket/root")
    machines = {name: spec_machines.MachineSpec(**machine) for name, machine in resources.items()}
    return kubeflow_compiler.compile_pipeline(handwritten, kubeflow, machines)


def test_each_trainer_has_its_machine_and_its_folder():
    from by_hand import two_trainers

    from tfx_distribute.components.launchers import settings

    machines = {"Small": {"cpu": 2, "memory": "4Gi"}, "Trainer": {"cpu": 8, "memory": "32Gi"}}
    pipeline = by_hand(*two_trainers(), **machines).pipeline
    for name, cpu in (("Small", "2"), ("Large", "8")):
        assert executors(pipeline)[f"{name}_executor"]["container"]["resources"]["resourceCpuLimit"] == cpu
        inputs = pipeline["root"]["dag"]["tasks"][name]["inputs"]["parameters"]
        launcher = settings.from_json(inputs["launcher"]["runtimeValue"]["constant"])
        assert launcher.worker["spec"]["containers"][0]["resources"]["limits"]["cpu"] == cpu, "a run may ask for pods"
        folder = inputs["checkpoint_dir"]["runtimeValue"]["constant"]
        assert folder == f"gs://bucket/root/by-hand/checkpoints/{name}"
    with pytest.raises(ConfigurationError, match=r"resources.Trainer: the pipeline has no such component"):
        by_hand(two_trainers()[0], Trainer={"cpu": 8})


def test_defaults_replace_those_of_the_same_parameters():
    from by_hand import make_model, trained

    kubeflow = KubeflowSettings(image="registry.example.com/model:1", pipeline_root="gs://bucket/root")

    def read_defaults(pipeline, **defaults):
        package = kubeflow_compiler.compile_pipeline(pipeline, kubeflow, {}, defaults)
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
        return tfx_orchestration.Pipeline("by-hand", "gs://bucket/root", components=models)

    assert read_defaults(sized(None, 2, 2)) == {"size": 2}
    assert read_defaults(sized(1, 2), size=3) == {"size": 3}
    with pytest.raises(
        ConfigurationError, match="^RuntimeParameter 'size': .* with the defaults 1 and 2; write one default"
    ):
        read_defaults(sized(1, 2))


def test_trials_of_a_pipeline_without_a_trainer_have_its_machine():
    from by_hand import two_trainers

    from tfx_distribute.components import Search, Tuner, ValueRange

    examples = two_trainers()[0]
    search = Search("val_loss", {"learning_rate": ValueRange(min=0.1, max=1.0)}, max_trials=1)
    known = {"build_model": "model.build_model", "label": "digit", "epochs": 1, "hparams": {"learning_rate": 0.1}}
    tuner = Tuner(search, examples=examples.outputs["examples"], **known)
    package = by_hand(examples, tuner, Trainer={"cpu": 8, "memory": "32Gi"})
    assert executors(package.pipeline)["Tuner_executor"]["container"]["resources"]["resourceCpuLimit"] == "8"


def test_resources_as_tfx_takes_them_are_kept():
    from kfp.pipeline_spec import pipeline_spec_pb2
    from tfx.components.example_gen.csv_example_gen.component import CsvExampleGen

    kind = pipeline_spec_pb2.PipelineDeploymentConfig.PipelineContainerSpec.ResourceSpec
    gpu = kind.AcceleratorConfig(type="nvidia.com/gpu", count=1)
    reader = CsvExampleGen("gs://bucket/data").with_platform_config(kind(cpu_limit=4, memory_limit=16, accelerator=gpu))
    pipeline = by_hand(reader).pipeline
    assert executors(pipeline)["CsvExampleGen_executor"]["container"]["resources"] == {
        "cpuLimit": 4.0,
        "resourceCpuLimit": "4",
        "memoryLimit": 16.0,
        "resourceMemoryLimit": "16G",
        "accelerator": {"type": "nvidia.com/gpu", "count": 1, "resourceType": "nvidia.com/gpu", "resourceCount": "1"},
    }


def latest_blessed(node="blessed", **channels):
    from tfx.dsl.components.common import resolver
    from tfx.dsl.input_resolution.strategies import latest_blessed_model_strategy
    from tfx.types import channel

    kinds = {"model": standard_artifacts.Model, "model_blessing": standard_artifacts.ModelBlessing}
    channels = channels or {name: channel.Channel(type=kind) for name, kind in kinds.items()}
    strategy = latest_blessed_model_strategy.LatestBlessedModelStrategy
    return resolver.Resolver(strategy_class=strategy, **channels).with_id(node)


def test_files_are_inspected_after_what_makes_them():
    from by_hand import make_model
    from tfx.components.example_gen.csv_example_gen.component import CsvExampleGen

    download, examples = make_model(size=1).with_id("download"), CsvExampleGen("gs://bucket/data")
    examples.add_upstream_node(download)
    tasks = by_hand(download, examples).pipeline["root"]["dag"]["tasks"]
    assert tasks["CsvExampleGen-input"]["dependentTasks"] == ["download"]
    assert tasks["CsvExampleGen"]["dependentTasks"] == ["CsvExampleGen-input", "download"]


def test_the_latest_blessed_model_is_looked_up_when_the_pipeline_says():
    from by_hand import make_model, make_trainer
    from tfx.components.example_gen.csv_example_gen.component import CsvExampleGen

    first, last, examples = make_model(size=1).with_id("first"), make_model(size=1).with_id("last"), CsvExampleGen("gs://b")
    model, other = latest_blessed(), latest_blessed("other")
    model.add_upstream_node(first)
    other.add_upstream_node(model)
    last.add_upstream_node(other)
    tuned = make_trainer(examples, base_model=model.outputs["model"])
    tasks = by_hand(first, examples, model, tuned, other, last).pipeline["root"]["dag"]["tasks"]
    assert tasks["blessed"]["dependentTasks"] == ["first"]
    assert tasks["blessed-import"]["dependentTasks"] == ["blessed"]
    assert tasks["Trainer"]["dependentTasks"] == ["CsvExampleGen", "blessed-import"]
    assert tasks["other"]["dependentTasks"] == ["blessed-import"]
    assert tasks["last"]["dependentTasks"] == ["other-import"]


def test_what_tfx_cannot_compile_is_refused():
    from tfx.components import InfraValidator
    from tfx.components.example_gen.csv_example_gen.component import CsvExampleGen
    from tfx.orchestration import pipeline
    from tfx.proto import infra_validator_pb2
    from tfx.types import channel, standard_artifacts

    spec = infra_validator_pb2.ServingSpec(kubernetes={}, tensorflow_serving={"tags": ["latest"]}, model_name="m")
    validator = InfraValidator(model=channel.Channel(type=standard_artifacts.Model), serving_spec=spec)
    inner = pipeline.Pipeline("inner", "gs://bucket/inner", components=[CsvExampleGen("gs://bucket/data")])
    for node in (validator, inner):
        with pytest.raises(ConfigurationError, match="knows no subpipelines, no ForEach, no InfraValidator"):
            by_hand(node)


def test_values_that_tfx_does_not_compile_are_refused():
    from by_hand import make_model
    from tfx.components.example_gen.csv_example_gen.component import CsvExampleGen
    from tfx.dsl.experimental.conditionals import conditional
    from tfx.orchestration.data_types import RuntimeParameter

    model = make_model(size=1).with_id("first")
    dynamic = make_model(size=model.outputs["size_of_model"].future()[0].value).with_id("second")
    with pytest.raises(ConfigurationError, match=r"^second.size: is a dynamic value, .* write a value or a RuntimeParam"):
        by_hand(model, dynamic)
    pattern = RuntimeParameter("pattern", str, default="*")
    nested = CsvExampleGen("gs://bucket/data", input_config={"splits": [{"name": "all", "pattern": pattern}]})
    with pytest.raises(ConfigurationError, match=r"^CsvExampleGen.input_config: has a RuntimeParameter within it; "):
        by_hand(nested)
    model = make_model(size=1).with_id("first")
    with conditional.Cond(model.outputs["size_of_model"].future()[0].value > 1):
        conditional_node = make_model(size=2).with_id("third")
    with pytest.raises(ConfigurationError, match=r"^third: depends on a condition that TFX cannot compile"):
        by_hand(model, conditional_node)


def test_resolvers_of_one_producer_are_refused_if_there_are_several():
    import tensorflow_model_analysis as tfma
    from by_hand import two_trainers
    from tfx.types import channel

    from tfx_distribute.components import Evaluator

    channels = {
        "model": channel.Channel(type=standard_artifacts.Model, producer_component_id="Small"),
        "model_blessing": channel.Channel(type=standard_artifacts.ModelBlessing),
    }
    by_hand(*two_trainers(), latest_blessed(**channels))  # whose model is blessed, decides
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
        by_hand(examples, latest_blessed(**channels), small, large, *evaluators)


def test_what_the_resolver_of_the_latest_blessed_model_finds():
    from by_hand import make_trainer
    from tfx.components import Pusher
    from tfx.components.example_gen.csv_example_gen.component import CsvExampleGen
    from tfx.proto import pusher_pb2
    from tfx.types import channel

    kinds = {"mine": standard_artifacts.Model, "its_blessing": standard_artifacts.ModelBlessing}
    found = latest_blessed(**{name: channel.Channel(type=kind) for name, kind in kinds.items()})
    examples = CsvExampleGen("gs://bucket/data")
    tasks = by_hand(examples, found, make_trainer(examples, base_model=found.outputs["mine"])).pipeline["root"]["dag"][
        "tasks"
    ]
    read = tasks["Trainer"]["inputs"]["artifacts"]["base_model"]["taskOutputArtifact"]
    assert read == {"producerTask": "blessed-import", "outputArtifactKey": "model"}
    destination = pusher_pb2.PushDestination(filesystem={"base_directory": "gs://bucket/serving"})
    pusher = Pusher(found.outputs["mine"], found.outputs["its_blessing"], push_destination=destination)
    with pytest.raises(ConfigurationError, match=r"^Pusher: reads the blessing of blessed, .* leave the blessing out"):
        by_hand(found, pusher)


def test_what_kubeflow_would_not_do_is_refused():
    from tfx.dsl.components.common import importer, resolver
    from tfx.dsl.input_resolution.strategies import latest_artifact_strategy
    from tfx.types import channel, standard_artifacts

    latest = resolver.Resolver(
        strategy_class=latest_artifact_strategy.LatestArtifactStrategy,
        model=channel.Channel(type=standard_artifacts.Model),
    ).with_id("latest-model")
    with pytest.raises(ConfigurationError, match="latest-model: Kubeflow Pipelines has no resolvers"):
        by_hand(latest)
    imported = importer.Importer(source_uri="/models/1", artifact_type=standard_artifacts.Model).with_id("import")
    with pytest.raises(ConfigurationError, match="import: imports '/models/1', which a cluster cannot read"):
        by_hand(imported)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": {}}, "targets.kubeflow: is missing"),
        ({"data": {"csv": "data"}}, "cannot be reached by a step; for Kubeflow write an address such as gs://bucket/folder"),
        (
            {"targets": {"kubeflow": TARGET | {"volumes": [{"claim": "c", "mount_path": "/minio/"}]}}},
            "targets.kubeflow.volumes: /minio/ is a folder of Kubeflow's own",
        ),
        (
            {"targets": {"kubeflow": TARGET | {"volumes": [{"claim": "c", "mount_path": path} for path in ("/a", "/b")]}}},
            "targets.kubeflow.volumes: claim c is there more than once",
        ),
        ({"data": {"csv": "s3://bucket/data"}}, "data.csv: s3://bucket/data cannot be reached by a step"),
        (
            {"beam": {"runner": "flink", "flink_master": "f:8081"}},
            "beam.runner: the machines of flink reach nothing at s3://",
        ),
        ({"push": {}}, "push.directory: is missing; a step cannot push to s3://bucket/root"),
        ({"push": {"directory": "/serving"}}, "push.directory: /serving cannot be reached by a step"),
        ({"resources": {"Trainr": {}}}, "resources.Trainr: the pipeline has no such component; it has CsvExampleGen"),
        (
            {"resources": {"Trainer": {"accelerator": "nvidia-l5"}}},
            "resources.Trainer.accelerator: gke has no 'nvidia-l5'; did you mean 'nvidia-l4'",
        ),
        ({"resources": {"default": {"accelerator": "gpu"}}}, "resources.default.accelerator: gke has no 'gpu'"),
        (
            {"resources": {"TrainerStep": {"accelerator": "nvidia-l4"}}},
            "resources.TrainerStep.accelerator: has no effect: this step only waits for the machines that train; write it "
            "under resources.Trainer",
        ),
        (
            {"targets": {"kubeflow": TARGET | {"training": "step"}}, "resources": {"TrainerStep": {"cpu": 1}}},
            "resources.TrainerStep: has no effect with training: step",
        ),
        ({"targets": {"kubeflow": TARGET | {"training_dir": "/elsewhere"}}}, "training_dir: /elsewhere is not on a volume"),
    ],
)
def test_mistakes(tmp_path, changes, message):
    file = project(tmp_path, "taxi", **changes)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        compiled(file)
    result = CliRunner().invoke(main, ["validate", str(file), "--target", "kubeflow"])
    assert (message in result.output) == ("Trainr" not in message), "only TFX knows all components"


def without_none(settings: dict) -> dict:
    return {name: value for name, value in settings.items() if value is not None}


def with_volume(mount_path):
    return {"volumes": [*TARGET["volumes"], {"claim": "more", "mount_path": mount_path}]}


@pytest.mark.parametrize(
    ("settings", "expected_start"),
    [
        (
            {"pipeline_root": "minio://mlpipeline/v2/artifacts"},
            "targets.kubeflow.pipeline_root: minio://mlpipeline/v2/artif",
        ),
        ({"pipeline_root": "minio://mlpipeline/private/other/a"}, "targets.kubeflow.pipeline_root: minio://mlpipeline/priv"),
        ({"pipeline_root": "minio://mlpipeline/private-artifacts/team/v2"}, None),
        ({"pipeline_root": "minio://mlpipeline/artifacts"}, None),
        ({"pipeline_root": "s3://own-bucket/root"}, None),
        ({"pipeline_root": "minio://mlpipeline/v2/artifacts", "namespace": None}, None),
        (
            {"gang_scheduling": {}, "training": "tfjob"},
            "targets.kubeflow.gang_scheduling: has an effect only if the Trainin",
        ),
        ({"gang_scheduling": {}}, None),
        (
            with_volume("/opt"),
            "targets.kubeflow.volumes: /opt hides /opt/venv, where the Dockerfile's image has this package",
        ),
        (with_volume("/pipeline"), "targets.kubeflow.volumes: /pipeline hides /pipeline, where"),
        (with_volume("/opt/data"), None),
    ],
)
def test_what_an_installation_may_refuse_or_ignore(tmp_path, settings, expected_start):
    target = without_none(TARGET | {"namespace": "team"} | settings)
    file = project(tmp_path, "digits", targets={"kubeflow": target}, resources={})
    result = CliRunner().invoke(main, ["plan", str(file), "--target", "kubeflow"])
    assert result.exit_code == 0, result.output
    warnings = [line for line in result.output.splitlines() if line.startswith("warning: targets.kubeflow")]
    assert [warning.startswith(f"warning: {expected_start}") for warning in warnings] == [True] * bool(expected_start)
    assert KubeflowTarget(loader.load(file)).find_warnings() == [warning.removeprefix("warning: ") for warning in warnings]


@pytest.mark.parametrize(
    ("name", "machine", "words", "is_warned_of"),
    [
        ("Trainer", {"accelerator": "nvidia-tesla-v100"}, (), True),
        ("Transform", {"accelerator": "nvidia-tesla-v100"}, (), True),
        ("Trainer", {"accelerator": "nvidia-l4"}, (), False),
        # Pods of a training have affinities with every version.
        ("Trainer", {"accelerator": "nvidia-tesla-v100"}, ("strategy=multi_worker_mirrored", "num_workers=2"), False),
        (
            "Trainer",
            {"accelerator": "nvidia-tesla-v100", "node_selector": {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}},
            (),
            False,
        ),
    ],
)
def test_steps_on_one_of_several_products(tmp_path, name, machine, words, is_warned_of):
    target = TARGET | {"platform": "kubernetes"}
    file = project(tmp_path, "digits", resources={name: machine}, targets={"kubeflow": target})
    spec = loader.override(loader.load(file), loader.parse_parameters(words))
    warnings = [warning for warning in KubeflowTarget(spec).find_warnings() if "several products" in warning]
    start = f"resources.{name}.accelerator: nvidia-tesla-v100 is several products, and "
    assert [warning.startswith(start) for warning in warnings] == [True] * is_warned_of


@pytest.mark.parametrize(
    ("words", "target", "message"),
    [
        (("accelerator_count=4",), {}, "accelerator_count: 4 devices per training process, but a machine has 2"),
        (
            ("num_workers=2", "strategy=multi_worker_mirrored"),
            {"training_dir": None},
            "training_dir: is missing; the pods of a training cannot reach s3://bucket/root",
        ),
    ],
)
def test_mistakes_about_training(tmp_path, words, target, message):
    file = project(tmp_path, "taxi", targets={"kubeflow": without_none(TARGET | target)})
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        compiled(file, "strategy=mirrored", *words)


def test_steps_send_beam_pipelines_to_a_job_service(tmp_path):
    """Its workers in containers have the image of the steps."""
    target = TARGET | {"pipeline_root": "gs://bucket/root"}
    beam = {"runner": "portable", "job_endpoint": "flink.beam:8099", "environment_type": "DOCKER"}
    package = compiled(project(tmp_path, "taxi", targets={"kubeflow": target}, beam=beam))
    for step in ("StatisticsGen", "Transform", "Sharder", "Evaluator"):
        args = executors(package.pipeline)[f"{step}_executor"]["container"]["args"]
        assert args[args.index("--runner=tfx_distribute.components.portable_runner.PortableRunner") :][:3] == [
            "--runner=tfx_distribute.components.portable_runner.PortableRunner",
            "--job_endpoint=flink.beam:8099",
            "--environment_type=DOCKER",
        ]
        assert f"--environment_config={TARGET['image']}" in args
