"""Reads compiled pipelines with the types of Vertex AI's SDK and Kubeflow Pipelines."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from google.cloud import aiplatform
from google.cloud.aiplatform_v1.types import CustomJob, PipelineJob
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from tfx_distribute.components.launchers import settings
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.runners import pipeline_ir, tfx_pipeline
from tfx_distribute.pipelines.runners.vertex import trainer_settings
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.pipelines.runners.vertex.target import VertexTarget
from tfx_distribute.pipelines.spec import loader, user_module
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError

REPOSITORY = Path(__file__).resolve().parents[4]
TARGET = {
    "image": "europe-west4-docker.pkg.dev/example-project/team/model:1",
    "pipeline_root": "gs://bucket/root",
    "project": "example-project",
    "region": "europe-west4",
    "labels": {"team": "a"},
}
RESOURCES = {
    "default": {"cpu": "500m", "memory": "2G"},
    "Transform": {"cpu": 4, "memory": "16G"},
    "Trainer": {"cpu": 4, "memory": "16G", "accelerator": "nvidia-tesla-t4", "accelerator_count": 2},
}

TUNE = {
    "objective": "val_accuracy",
    "max_trials": 3,
    "space": {"learning_rate": {"min": 0.0001, "max": 0.1, "sampling": "log"}},
}


def project(folder: Path, example: str, **changes: object) -> Path:
    """Copies an example, with Vertex AI as a target; returns its pipeline file."""
    shutil.copytree(REPOSITORY / "examples" / example, folder, dirs_exist_ok=True)
    file = folder / "pipeline.yaml"
    document = yaml.safe_load(file.read_text())
    document |= {"targets": {"vertex": TARGET}, "resources": RESOURCES, "push": {"directory": "gs://bucket/serving"}}
    if example == "taxi":
        document["data"]["csv"] = "gs://bucket/data"
    file.write_text(yaml.safe_dump(document | changes))
    return file


def compiled(file: Path, *words: str):
    spec = loader.override(loader.load(file), loader.parse_parameters(words))
    return VertexTarget(spec).compile(user_module.find(spec))


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
    return package.job["pipelineSpec"]["deploymentSpec"]["executors"][f"{name}_executor"]["container"]


def trainer(package):
    return package.job["pipelineSpec"]["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"]


def launcher(package):
    return settings.from_json(trainer(package)["launcher"]["runtimeValue"]["constantValue"]["stringValue"])


def test_the_types_of_the_sdk_and_of_kubeflow_know_every_field(package):
    json_format.ParseDict(package.job, PipelineJob.pb(PipelineJob()))
    spec = json_format.ParseDict(package.job["pipelineSpec"], pipeline_spec_pb2.PipelineSpec())
    deployment = json_format.MessageToDict(spec.deployment_spec)
    json_format.ParseDict(deployment, pipeline_spec_pb2.PipelineDeploymentConfig())
    assert spec.schema_version == "2.0.0", "which has the resolvers and drivers of TFX"


def test_the_sdk_takes_it_with_its_defaults(package, tmp_path):
    (tmp_path / "job.json").write_text(package.to_text())
    from google.auth.credentials import AnonymousCredentials

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
    assert values["strategy"].string_value == package.job["runtimeConfig"]["parameters"]["strategy"]["stringValue"]
    assert job.runtime_config.gcs_output_directory == "gs://bucket/root"


def test_each_pipeline_parameter_has_its_value(taxi, taxi_file):
    spec = loader.load(taxi_file)
    declared = taxi.job["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]
    values = {name: next(iter(value.values())) for name, value in taxi.job["runtimeConfig"]["parameters"].items()}
    assert values == tfx_pipeline.get_parameter_values(spec)
    assert set(values) == set(declared)


def test_base_model_is_imported_or_resolved(tuned, tmp_path):
    def reads(package):
        tasks = package.job["pipelineSpec"]["root"]["dag"]["tasks"]
        return tasks["Trainer"]["inputs"]["artifacts"]["base_model"]["taskOutputArtifact"]

    assert reads(tuned) == {"producerTask": "base-model", "outputArtifactKey": "result"}
    importer = tuned.job["pipelineSpec"]["deploymentSpec"]["executors"]["base-model_executor"]["importer"]
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


def test_data_of_a_declared_version_are_not_read_again(digits):
    tasks = digits.job["pipelineSpec"]["root"]["dag"]["tasks"]
    cached = {name for name, task in tasks.items() if task.get("cachingOptions") == {"enableCache": True}}
    assert set(tasks) - cached == {"Pusher"}, "which sees what is served"
    task = tasks["DigitsExampleGen"]
    fingerprint = task["inputs"]["parameters"]["fingerprint"]["runtimeValue"]["constantValue"]["stringValue"]
    assert json.loads(fingerprint)["content"].endswith(" 1"), "after the hash of its code"


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_search_has_the_machine_and_the_launcher_of_the_trainer(tmp_path, num_workers):
    words = ("strategy=multi_worker_mirrored", f"num_workers={num_workers}")
    package = compiled(project(tmp_path, "digits", tune=TUNE), *words)
    tuner, trainer = container(package, "Tuner"), container(package, "Trainer")
    assert (tuner["resources"], tuner.get("env")) == (trainer["resources"], trainer.get("env"))
    tasks = package.job["pipelineSpec"]["root"]["dag"]["tasks"]
    assert tasks["Tuner"].get("retryPolicy") == tasks["Trainer"].get("retryPolicy")
    inputs = {name: tasks[name]["inputs"]["parameters"] for name in ("Tuner", "Trainer")}
    for name in ("launcher", "strategy", "num_workers", "hparams"):
        assert inputs["Tuner"][name] == inputs["Trainer"][name]


def test_what_the_trainer_is_told(taxi, digits):
    assert launcher(taxi).training == "auto", "a run may ask for more workers"
    assert launcher(digits).training == "custom_job", "its step is too small to train"
    assert launcher(digits).worker["machine_type"] == "n1-highmem-4", "16 GB beside Vertex AI's agents"
    kept = trainer(taxi)["checkpoint_dir"]["runtimeValue"]["constantValue"]["stringValue"]
    assert kept == "gs://bucket/root/taxi/checkpoints"


def test_a_step_that_has_others_train_is_tried_again(taxi, digits):
    tasks = digits.job["pipelineSpec"]["root"]["dag"]["tasks"]
    assert {name: task["retryPolicy"] for name, task in tasks.items() if "retryPolicy" in task} == {
        "Trainer": {"maxRetryCount": 1}
    }
    assert "retryPolicy" not in taxi.job["pipelineSpec"]["root"]["dag"]["tasks"]["Trainer"]


@pytest.mark.parametrize("setting", [{"timeout": 60}, {"boot_disk_size_gb": 200}, {"scheduling_strategy": "STANDARD"}])
def test_what_only_worker_pools_have(setting, tmp_path):
    package = compiled(project(tmp_path, "digits", targets={"vertex": {**TARGET, **setting}}))
    assert launcher(package).training == "custom_job"


def test_a_machine_that_no_step_has(tmp_path):
    package = compiled(project(tmp_path, "digits", resources={"Trainer": {"cpu": 16, "machine_type": "n1-standard-96"}}))
    assert launcher(package).training == "custom_job"
    assert launcher(package).worker == {"machine_type": "n1-standard-96"}


def test_disks_are_those_of_the_pool_that_they_are_given_for(tmp_path):
    nodes = {
        "Trainer": {"accelerator": "nvidia-h200-141gb", "accelerator_count": 8, "boot_disk_type": "hyperdisk-balanced"},
        "ParameterServer": {"cpu": 4, "boot_disk_size_gb": 500},
    }
    target = {**TARGET, "boot_disk_size_gb": 200}
    words = ("strategy=parameter_server", "num_workers=2")
    package = compiled(project(tmp_path, "digits", resources=nodes, targets={"vertex": target}), *words)
    assert launcher(package).disk_spec == {"boot_disk_type": "hyperdisk-balanced", "boot_disk_size_gb": 200}
    assert launcher(package).parameter_server_disk_spec == {"boot_disk_size_gb": 500}


@pytest.mark.parametrize(
    ("machine", "target", "start"),
    [
        (
            {"accelerator": "nvidia-h100-80gb"},
            {},
            "resources.Trainer.accelerator_count: Compute Engine starts a3-highgpu-1g ",
        ),
        ({"accelerator": "nvidia-h100-80gb", "spot": True}, {}, ""),
        ({"accelerator": "nvidia-h100-80gb"}, {"scheduling_strategy": "FLEX_START"}, ""),
        ({"accelerator": "nvidia-h100-80gb", "accelerator_count": 8}, {}, "resources.Trainer: a machine has 8 nvidia-h100"),
        ({"accelerator": "nvidia-l4"}, {}, ""),
    ],
)
def test_machines_that_may_not_start_or_are_idle(tmp_path, machine, target, start):
    changes = {"resources": {"Trainer": machine}, "targets": {"vertex": TARGET | target}}
    spec = loader.override(loader.load(project(tmp_path, "digits", **changes)), {"strategy": "one_device"})
    assert [warning.startswith(start) for warning in VertexTarget(spec).find_warnings()] == [True] * bool(start)


def test_machines_that_do_not_start_from_the_usual_disk():
    resources = {"Trainer": MachineSpec(machine_type="n4-standard-8"), "ParameterServer": MachineSpec(cpu="4")}
    settings = trainer_settings.launcher("p", resources, VertexSettings(**TARGET))
    assert settings.disk_spec == {"boot_disk_type": "hyperdisk-balanced"}
    assert settings.parameter_server_disk_spec == {}


def test_machines_that_are_waited_for_and_their_interface_to_a_network(tmp_path):
    """The request is read strictly, with the types of the SDK."""
    peering = {"domain": "internal.example.com.", "target_project": "p", "target_network": "shared"}
    interface = {"network_attachment": "attachment", "dns_peering_configs": [peering]}
    target = {**TARGET, "scheduling_strategy": "FLEX_START", "max_wait_duration": 0, "psc_interface_config": interface}
    resources = {"Trainer": {"accelerator": "nvidia-l4"}}
    file = project(tmp_path, "digits", resources=resources, targets={"vertex": target})
    words = loader.parse_parameters(("strategy=multi_worker_mirrored", "num_workers=2"))
    request = VertexTarget(loader.override(loader.load(file), words)).launches()
    job = CustomJob()
    json_format.ParseDict(request, CustomJob.pb(job))
    assert job.job_spec.scheduling.strategy.name == "FLEX_START"
    assert "max_wait_duration" in job.job_spec.scheduling, "0 s, which is for any time, and not the default"
    assert (
        json_format.MessageToDict(
            type(job.job_spec.psc_interface_config).pb(job.job_spec.psc_interface_config), preserving_proto_field_name=True
        )
        == interface
    )


def test_a_step_has_no_spot_machine(tmp_path):
    nodes = {"Trainer": {"accelerator": "nvidia-l4", "spot": True}}
    package = compiled(project(tmp_path, "digits", resources=nodes))
    assert launcher(package).training == "custom_job"
    assert launcher(package).scheduling == {"strategy": "SPOT"}


def test_beam_on_dataflow_has_the_image_of_the_steps(tmp_path):
    beam = {"runner": "dataflow", "project": "p", "region": "europe-west4", "temp_location": "gs://bucket/tmp"}
    package = compiled(project(tmp_path, "taxi", beam=beam))
    assert f"--sdk_container_image={TARGET['image']}" in container(package, "Transform")["args"]


def test_the_same_pipeline_gives_the_same_bytes(taxi, taxi_file, tmp_path):
    words = [sys.executable, "-m", "tfx_distribute.pipelines", "compile", taxi_file, "--target", "vertex"]
    subprocess.run([*words, "-o", tmp_path / "again.json"], check=True, timeout=120, capture_output=True)
    assert (tmp_path / "again.json").read_text() == taxi.to_text()


def test_a_pipeline_written_by_hand_is_told_of_the_target_too():
    from by_hand import trained

    from tfx_distribute.pipelines.runners.vertex import compiler as runner
    from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings

    handwritten = trained("gs://bucket/root")
    before = {component.id: dict(component.exec_properties) for component in handwritten.components}
    package = runner.compile_pipeline(handwritten, VertexSettings(**TARGET), {})
    assert launcher(package).image == TARGET["image"]
    assert launcher(package).training == "custom_job", "two workers"
    assert {component.id: dict(component.exec_properties) for component in handwritten.components} == before


def test_each_trainer_has_its_machine_and_its_folder():
    from by_hand import two_trainers
    from tfx.orchestration import pipeline

    from tfx_distribute.pipelines.runners.vertex import compiler as runner
    from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
    from tfx_distribute.pipelines.spec.machines import MachineSpec

    machines = {"Small": MachineSpec(cpu="4", memory="8Gi"), "Trainer": MachineSpec(machine_type="n1-highmem-64")}
    handwritten = pipeline.Pipeline("by-hand", "gs://bucket/root", components=two_trainers())
    spec = runner.compile_pipeline(handwritten, VertexSettings(**TARGET), machines).job["pipelineSpec"]
    for name, worker, training in (("Small", "n2-standard-4", "auto"), ("Large", "n1-highmem-64", "custom_job")):
        inputs = {
            key: value["runtimeValue"]["constantValue"].get("stringValue")
            for key, value in spec["root"]["dag"]["tasks"][name]["inputs"]["parameters"].items()
        }
        launcher = settings.from_json(inputs["launcher"])
        assert (launcher.worker, launcher.training) == ({"machine_type": worker}, training)
        assert inputs["checkpoint_dir"] == f"gs://bucket/root/by-hand/checkpoints/{name}"


def test_resolvers_wait_for_what_the_pipeline_says():
    from by_hand import make_model
    from tfx.dsl.components.common import resolver
    from tfx.dsl.input_resolution.strategies import latest_artifact_strategy, latest_blessed_model_strategy
    from tfx.orchestration import pipeline
    from tfx.types import channel, standard_artifacts

    from tfx_distribute.pipelines.runners.vertex import compiler as runner
    from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings

    kinds = {"model": standard_artifacts.Model, "model_blessing": standard_artifacts.ModelBlessing}
    channels = {name: channel.Channel(type=kind) for name, kind in kinds.items()}
    blessed = resolver.Resolver(latest_blessed_model_strategy.LatestBlessedModelStrategy, **channels).with_id("blessed")
    latest = resolver.Resolver(latest_artifact_strategy.LatestArtifactStrategy, model=channels["model"]).with_id("latest")
    first, last = make_model(size=1).with_id("first"), make_model(size=1).with_id("last")
    blessed.add_upstream_node(first)
    latest.add_upstream_node(blessed)
    last.add_upstream_node(latest)
    handwritten = pipeline.Pipeline("by-hand", "gs://bucket/root", components=[first, blessed, latest, last])
    tasks = runner.compile_pipeline(handwritten, VertexSettings(**TARGET), {}).job["pipelineSpec"]["root"]["dag"]["tasks"]
    assert {name: task.get("dependentTasks") for name, task in tasks.items()} == {
        "first": None,
        "blessed-model-blessing-resolver": ["first"],
        "blessed-model-resolver": None,  # it reads what the one before has found
        "latest": ["blessed-model-resolver"],
        "last": ["latest"],
    }


REFUSED = {
    "no project": ({"project": None}, {}, (), "targets.vertex.project: is missing; write it, or give --project"),
    "tensorboard": (
        {"tensorboard": "projects/1/locations/europe-west4/tensorboards/2"},
        {},
        (),
        "targets.vertex.service_account: is missing, and only with one can training write to a TensorBoard instance",
    ),
    "local push": ({}, {"push": {"directory": "/serving"}}, (), "push.directory: /serving cannot be reached by a step"),
    "machine of a step that does not wait": (
        {"training": "step"},
        {"resources": {"TrainerStep": {"cpu": 1}}},
        (),
        "resources.TrainerStep: has no effect with training: step",
    ),
    "step on a TPU": (
        {"training": "step", "region": "us-west4"},
        {"resources": {"Trainer": {"accelerator": "tpu-v5-lite-podslice", "topology": "2x2"}}},
        ("strategy=tpu",),
        "targets.vertex.training: a step has no TPU (tpu-v5-lite-podslice); write custom_job or auto",
    ),
    "TPU of several machines": (
        {"region": "us-west4"},
        {"resources": {"Trainer": {"accelerator": "tpu-v5-lite-podslice", "topology": "4x4"}}},
        ("strategy=tpu",),
        "resources.Trainer.topology: 4x4 is several machines",
    ),
    "GPU without strategy of it": (
        {},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4"}}},
        ("strategy=tpu",),
        "resources.Trainer.accelerator: strategy tpu does not train on nvidia-l4",
    ),
    "reduction servers without GPU": (
        {},
        {"resources": {}},
        ("strategy=multi_worker_mirrored", "num_workers=2", "all_reduce=reduction_server"),
        "resources.Trainer.accelerator: is missing, and reduction servers sum what GPUs send",
    ),
    "reduction servers of one machine": (
        {},
        {},
        ("strategy=multi_worker_mirrored", "all_reduce=reduction_server"),
        "all_reduce: reduction_server sums between machines, and num_workers is 1; write all_reduce=auto",
    ),
    "label": ({"labels": {"Team": "a"}}, {}, (), "targets.vertex.labels"),
    "step with a timeout": (
        {"training": "step", "timeout": 60},
        {},
        (),
        "targets.vertex.training: a step has no timeout; write custom_job or auto",
    ),
    "reduction servers of a step": (
        {"training": "step"},
        {},
        ("strategy=multi_worker_mirrored", "num_workers=2", "all_reduce=reduction_server"),
        "all_reduce: reduction_server is Vertex AI's, and a step has none",
    ),
    "spot of a reservation": (
        {"reservation": "projects/p/zones/europe-west4-a/reservations/r"},
        {"resources": {"Trainer": {"spot": True}}},
        (),
        "targets.vertex.reservation: spot machines come from no reservation",
    ),
    "key of another region": (
        {"encryption_spec_key_name": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"},
        {},
        (),
        "is not in europe-west4, where the pipeline runs; write one of that region",
    ),
    "TPU for all": (
        {"region": "us-west4"},
        {"resources": {"default": {"accelerator": "tpu-v5-lite-podslice", "topology": "2x2"}}},
        ("strategy=tpu",),
        "resources.default: a step has no TPU (tpu-v5-lite-podslice); only training has: write it under resources.Trainer",
    ),
    "machine of a step": (
        {},
        {"resources": {"Transform": {"machine_type": "n2-standard-8"}}},
        (),
        "resources.Transform: a step has no machine type (n2-standard-8)",
    ),
    "accelerator of a step": (
        {},
        {"resources": {"Transform": {"accelerator": "nvidia-l5"}}},
        (),
        "resources.Transform.accelerator: vertex has no 'nvidia-l5'; did you mean 'nvidia-l4'",
    ),
    "more CPUs than a step's": (
        {},
        {"resources": {"Transform": {"cpu": 128}}},
        (),
        "resources.Transform: a step has at most 96 CPUs, not 128; ask for less, or have Beam run on other machines",
    ),
    "more memory than a step's": (
        {"training": "step"},
        {"resources": {"Trainer": {"memory": "620G"}}},
        (),
        "resources.Trainer: a step's machine has at most 624 GB of memory, not 626.87",
    ),
    "machine type of reduction servers": (
        {"reduction_server_machine_type": "n2-highmem-96"},
        {},
        (),
        "targets.vertex.reduction_server_machine_type: Vertex AI has no 'n2-highmem-96' for training; write one of",
    ),
    "disk of reduction servers": (
        {"reduction_server_machine_type": "n4-highcpu-16"},
        {},
        (),
        "targets.vertex.reduction_server_machine_type: n4-highcpu-16 does not start from the service's default disk",
    ),
    "parameter servers that are no spot machines": (
        {},
        {"resources": {"Trainer": {"spot": True}, "ParameterServer": {"cpu": 4}}},
        (),
        "resources.ParameterServer.spot: is false, and resources.Trainer.spot true, but Vertex AI takes all machines",
    ),
    "parameter servers on the default machine": (
        {},
        {"resources": {"Trainer": {"spot": True}, "default": {"cpu": 4}}},
        ("strategy=parameter_server", "num_workers=2"),
        "resources.ParameterServer.spot: is false",
    ),
    "TPU of another region": (
        {"region": "europe-west1"},
        {"resources": {"Trainer": {"accelerator": "tpu-v5-lite-podslice", "topology": "2x2"}}},
        ("strategy=tpu",),
        "resources.Trainer.accelerator: europe-west1 has no tpu-v5-lite-podslice for training; write another ",
    ),
    "reservation of another region": (
        {"reservation": "projects/p/zones/us-central1-a/reservations/r"},
        {},
        (),
        "targets.vertex.reservation: projects/p/zones/us-central1-a/reservations/r is not in a zone of europe-west4",
    ),
    "network of a project's id": (
        {"network": "projects/example-project/global/networks/n"},
        {},
        (),
        "targets.vertex.network: projects/example-project/global/networks/n names a project by its id; write its number",
    ),
    "network and interface": (
        {"network": "projects/1/global/networks/n", "psc_interface_config": {"network_attachment": "a"}},
        {},
        (),
        "targets.vertex.network: machines reach a network by peering or through an interface; leave network or",
    ),
    "interface of another region": (
        {"psc_interface_config": {"network_attachment": "projects/p/regions/us-central1/networkAttachments/a"}},
        {},
        (),
        "targets.vertex.psc_interface_config.network_attachment: projects/p/regions/us-central1/networkAttachments/a is",
    ),
    "waiting with another strategy": (
        {"max_wait_duration": 60},
        {},
        (),
        "targets.vertex.max_wait_duration: only FLEX_START waits",
    ),
    "waiting for a GPU that is not waited for": (
        {"scheduling_strategy": "FLEX_START"},
        {},
        (),
        "FLEX_START is for some kinds of GPU, and resources.Trainer.accelerator is nvidia-tesla-t4; write one of nvidia-l4",
    ),
    "waiting for spot machines": (
        {"scheduling_strategy": "FLEX_START"},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4", "spot": True}}},
        (),
        "FLEX_START is a way to get machines, and so is resources.Trainer.spot; leave one of them out",
    ),
    "waiting for too long a training": (
        {"scheduling_strategy": "FLEX_START", "timeout": 604801},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4"}}},
        (),
        "targets.vertex.timeout: with FLEX_START, training takes at most seven days; write 604800",
    ),
    "waiting for machines of several kinds": (
        {"scheduling_strategy": "FLEX_START"},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4"}}},
        ("strategy=parameter_server", "num_workers=2"),
        "FLEX_START gives all processes the same kind of machine, and this training has several; write a strategy without",
    ),
    "disk of a machine": (
        {"boot_disk_type": "pd-standard"},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4"}}},
        (),
        "targets.vertex.boot_disk_type: g2-standard-4 does not start from pd-standard; write resources.Trainer.",
    ),
    "disk of a step": (
        {},
        {"resources": {"Transform": {"boot_disk_size_gb": 200}}},
        (),
        "resources.Transform: a step has no boot_disk_size_gb; only training has",
    ),
    "no such component": ({}, {"resources": {"Traner": {}}}, (), "resources.Traner: the pipeline has no such component"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    target, changes, words, message = REFUSED[case]
    targets = {"vertex": {name: value for name, value in {**TARGET, **target}.items() if value is not None}}
    file = project(tmp_path, "digits", targets=targets, **changes)
    with pytest.raises(ConfigurationError) as error:
        compiled(file, *words)
    assert message in str(error.value)
    parameters = [word for parameter in words for word in ("-p", parameter)]
    result = CliRunner().invoke(main, ["validate", str(file), "--target", "vertex", *parameters])
    assert (message in result.output) == (case != "no such component"), "only TFX knows all components"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--host", "http://k"), "--host: goes with --target kubeflow, not with --target vertex"),
        (("--start-time", "2026-01-01T00:00:00Z"), "--start-time: belongs to a schedule; write --cron too"),
        (("--region", "Europe"), "--region: 'Europe' is not allowed"),
        (("--labels", "team"), "--labels: 'team' is not a label; write KEY=VALUE"),
        (("--region", "europe-west99"), "--region: europe-west99: Unsupported region for Vertex AI"),
        (("--cron", "0 3 * * *", "--wait"), "--wait: is for one run, and --cron makes a schedule; leave one of them out"),
    ],
)
def test_options_that_do_not_go_together(words, message, taxi_file):
    result = CliRunner().invoke(main, ["submit", str(taxi_file), "--target", "vertex", *words])
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert message in result.output


def test_each_component_fails_where_user_code_exits(package):
    executors = package.job["pipelineSpec"]["deploymentSpec"]["executors"].values()
    commands = [executor["container"]["command"] for executor in executors if "container" in executor]
    assert commands == [pipeline_ir.make_command("tfx_distribute.components.container.vertex")] * len(commands)
