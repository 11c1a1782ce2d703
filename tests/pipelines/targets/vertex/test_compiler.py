"""Reads compiled pipeline files with the types of Vertex AI's SDK and of kfp."""

import pytest
from by_hand import latest_blessed, make_model
from compiled_for_vertex import TARGET, compiled, project, read_launcher, trainer_parameters
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform
from google.cloud.aiplatform_v1.types import PipelineJob
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies import latest_artifact_strategy
from tfx.orchestration.pipeline import Pipeline
from tfx.types import channel, standard_artifacts

from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.targets import pipeline_ir, tfx_pipeline
from tfx_distribute.pipelines.targets.vertex import compiler
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture(scope="module")
def taxi_file(tmp_path_factory):
    return project(tmp_path_factory.mktemp("taxi"), "taxi")


@pytest.fixture(scope="module")
def taxi(taxi_file):
    """With CSV files, a baseline, and training in the step."""
    return compiled(taxi_file)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """With an ExampleGen of its own, and training in worker pools."""
    return compiled(project(tmp_path_factory.mktemp("digits"), "digits"), "strategy=multi_worker_mirrored", "num_workers=4")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """With a base model at an address."""
    return compiled(project(tmp_path_factory.mktemp("tuned"), "digits"), "base_model=gs://bucket/model")


@pytest.fixture(params=["taxi", "digits", "tuned"])
def package(request):
    return request.getfixturevalue(request.param)


def container(package, name):
    return package.pipeline["pipelineSpec"]["deploymentSpec"]["executors"][f"{name}_executor"]["container"]


def test_the_types_of_the_sdk_and_of_kubeflow_know_every_field(package):
    json_format.ParseDict(package.pipeline, PipelineJob.pb(PipelineJob()))
    spec = json_format.ParseDict(package.pipeline["pipelineSpec"], pipeline_spec_pb2.PipelineSpec())
    deployment = json_format.MessageToDict(spec.deployment_spec)
    json_format.ParseDict(deployment, pipeline_spec_pb2.PipelineDeploymentConfig())
    assert spec.schema_version == "2.0.0", "which has the resolvers and drivers of TFX"


def test_the_sdk_takes_it_with_its_defaults(digits, tmp_path):
    (tmp_path / "job.json").write_text(digits.to_text())
    job = aiplatform.PipelineJob(
        "digits",
        str(tmp_path / "job.json"),
        parameter_values={"epochs": 3},
        project="example-project",
        location="europe-west4",
        credentials=AnonymousCredentials(),
    )
    values = job.runtime_config.parameters
    assert values["epochs"].int_value == 3
    assert values["strategy"].string_value == digits.pipeline["runtimeConfig"]["parameters"]["strategy"]["stringValue"]
    assert job.runtime_config.gcs_output_directory == "gs://bucket/root"


def test_each_pipeline_parameter_has_its_value(taxi, taxi_file):
    spec = loader.load(taxi_file)
    declared = taxi.pipeline["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]
    values = {name: next(iter(value.values())) for name, value in taxi.pipeline["runtimeConfig"]["parameters"].items()}
    assert values == tfx_pipeline.get_parameter_values(spec)
    assert set(values) == set(declared)


def test_base_model_is_imported_or_resolved(tuned, tmp_path):
    def reads(package):
        tasks = package.pipeline["pipelineSpec"]["root"]["dag"]["tasks"]
        return tasks["Trainer"]["inputs"]["artifacts"]["base_model"]["taskOutputArtifact"]

    assert reads(tuned) == {"producerTask": "base-model", "outputArtifactKey": "result"}
    importer = tuned.pipeline["pipelineSpec"]["deploymentSpec"]["executors"]["base-model_executor"]["importer"]
    assert importer["artifactUri"] == {"constantValue": {"stringValue": "gs://bucket/model"}}
    latest = compiled(project(tmp_path, "digits"), "base_model=latest_blessed")
    assert reads(latest) == {"producerTask": "latest-blessed-model-model-resolver", "outputArtifactKey": "model"}
    with pytest.raises(ConfigurationError, match=r"trainer.base_model: /model cannot be reached by a step"):
        compiled(project(tmp_path, "digits"), "base_model=/model")


def test_machines_of_steps(taxi, digits):
    memory = {"2G": 3.33, "16G": 22.87}  # with that of Vertex AI's agents, in GB
    assert container(taxi, "Transform")["resources"] == {"cpuLimit": 4.0, "memoryLimit": memory["16G"]}
    assert container(taxi, "CsvExampleGen")["resources"] == {"cpuLimit": 0.5, "memoryLimit": memory["2G"]}
    accelerator = {"type": "NVIDIA_TESLA_T4", "count": "2"}
    assert container(taxi, "Trainer")["resources"] == {
        "cpuLimit": 4.0,
        "memoryLimit": memory["16G"],
        "accelerator": accelerator,
    }
    requested = [{"name": "TFX_DISTRIBUTE_REQUESTED_GPUS", "value": accelerator["count"]}]
    assert container(taxi, "Trainer")["env"] == requested, "without which TensorFlow would use the CPU in silence"
    assert "accelerator" not in container(digits, "Trainer")["resources"], "it has others train"


def test_what_the_trainer_is_told(taxi, digits):
    assert read_launcher(taxi).training == "auto", "a run may ask for more workers"
    assert read_launcher(digits).training == "elsewhere", "its step is too small to train"
    assert read_launcher(digits).worker["machine_spec"]["machine_type"] == "n1-standard-16"
    kept = trainer_parameters(taxi)["checkpoint_dir"]["runtimeValue"]["constantValue"]["stringValue"]
    assert kept == "gs://bucket/root/taxi/checkpoints"


def test_a_step_that_has_others_train_is_tried_again(taxi, digits):
    tasks = digits.pipeline["pipelineSpec"]["root"]["dag"]["tasks"]
    assert {name: task["retryPolicy"] for name, task in tasks.items() if "retryPolicy" in task} == {
        "Trainer": {"maxRetryCount": 1}
    }
    assert "retryPolicy" not in taxi.pipeline["pipelineSpec"]["root"]["dag"]["tasks"]["Trainer"]


def test_words_of_the_api_for_worker_pools(tmp_path):
    disk, reservation = {"boot_disk_size_gb": 200}, {"reservation_affinity_type": "NO_RESERVATION"}
    target = {
        **TARGET,
        "network": "projects/1/global/networks/n",
        "worker_pool": {
            "disk_spec": disk,
            "machine_spec": {"reservation_affinity": reservation},
            "container_spec": {"env": [{"name": "A", "value": "b"}]},
        },
        "custom_job": {"scheduling": {"strategy": "FLEX_START", "max_wait_duration": "0s"}, "enable_web_access": True},
        "reduction_server": {"replica_count": 3},
    }
    resources = {"Trainer": {"accelerator": "nvidia-l4", "spot": True}}
    launcher = read_launcher(compiled(project(tmp_path, "digits", resources=resources, targets={"vertex": target})))
    assert launcher.worker["disk_spec"] == launcher.parameter_server["disk_spec"] == disk
    assert launcher.worker["machine_spec"] == {
        "machine_type": "g2-standard-12",
        "accelerator_type": "NVIDIA_L4",
        "accelerator_count": 1,
        "reservation_affinity": reservation,
    }
    assert launcher.worker["container_spec"] == {"image_uri": TARGET["image"], "env": [{"name": "A", "value": "b"}]}
    assert launcher.parameter_server["machine_spec"] == {"machine_type": "n1-standard-4"}
    assert launcher.job["job_spec"] == {**target["custom_job"], "network": target["network"]}
    assert launcher.reduction_server["container_spec"]["image_uri"].endswith("/reductionserver:latest"), "Google's own"
    assert launcher.reduction_server["replica_count"] == 3


def test_beam_on_dataflow_has_the_image_of_the_steps(tmp_path):
    beam = {"runner": "dataflow", "project": "p", "region": "europe-west4", "temp_location": "gs://bucket/tmp"}
    package = compiled(project(tmp_path, "taxi", beam=beam))
    assert f"--sdk_container_image={TARGET['image']}" in container(package, "Transform")["args"]


def test_each_component_fails_where_user_code_exits(package):
    executors = package.pipeline["pipelineSpec"]["deploymentSpec"]["executors"].values()
    commands = [executor["container"]["command"] for executor in executors if "container" in executor]
    assert commands == [pipeline_ir.make_command("tfx_distribute.components.container.vertex")] * len(commands)


def test_resolvers_wait_for_what_the_pipeline_says():
    models = channel.Channel(type=standard_artifacts.Model)
    latest = resolver.Resolver(latest_artifact_strategy.LatestArtifactStrategy, model=models).with_id("latest")
    blessed = latest_blessed()
    first, last = make_model(size=1).with_id("first"), make_model(size=1).with_id("last")
    blessed.add_upstream_node(first)
    latest.add_upstream_node(blessed)
    last.add_upstream_node(latest)
    handwritten = Pipeline("by-hand", "gs://bucket/root", components=[first, blessed, latest, last])
    tasks = compiler.compile_pipeline(handwritten, VertexSettings(**TARGET), {}).pipeline["pipelineSpec"]["root"]["dag"][
        "tasks"
    ]
    assert {name: task.get("dependentTasks") for name, task in tasks.items()} == {
        "first": None,
        "blessed-model-blessing-resolver": ["first"],
        "blessed-model-resolver": None,  # it reads what the one before has found
        "latest": ["blessed-model-resolver"],
        "last": ["latest"],
    }
