"""Reads compiled pipeline files as the backend of Kubeflow Pipelines does."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from compiled_for_kubeflow import TARGET, compiled, executors, project

from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.notify.kubeflow_step import VALIDATOR, Settings
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.pipelines.targets.kubeflow import compiler as kubeflow_compiler
from tfx_distribute.pipelines.targets.kubeflow.target import KubeflowTarget
from tfx_distribute.trainer_module.errors import ConfigurationError

REPOSITORY = Path(__file__).resolve().parents[4]

TUNE = {
    "objective": "val_accuracy",
    "max_trials": 3,
    "space": {"learning_rate": {"min": 0.0001, "max": 0.1, "sampling": "log"}},
}


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


@pytest.fixture(scope="module")
def notifying_file(tmp_path_factory):
    target = {**TARGET, "secrets": [{"name": "notify", "env": {"NOTIFY_URLS": "urls"}}]}
    notify = {"urls": "NOTIFY_URLS", "when": ["failed"]}
    return project(tmp_path_factory.mktemp("notifying"), "digits", notify=notify, targets={"kubeflow": target})


@pytest.fixture(scope="module")
def notifying(notifying_file):
    """With a step at its end."""
    return compiled(notifying_file)


@pytest.fixture(params=["taxi", "digits", "tuned", "notifying"])
def package(request):
    return request.getfixturevalue(request.param)


def dags(pipeline):
    yield pipeline["root"], pipeline["root"]["dag"]
    yield from ((component, component["dag"]) for component in pipeline["components"].values() if "dag" in component)


def test_newest_kubeflow_reads_all_of_it(package, tmp_path):
    (tmp_path / "p.yaml").write_text(package.to_text())
    words = [REPOSITORY / ".venv-kfp/bin/python", REPOSITORY / "tests/fakes/strict_kfp.py", tmp_path / "p.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(executors(package.pipeline))} executors" in done.stdout


def test_text_like_a_number_is_text_for_every_parser_of_yaml():
    """Kubeflow's takes all of these for numbers or dates unless they are quoted."""
    words = ["12345e7", "0o17", "08", "1.5e3", "2026-1-5", "-1e3", ".5e1", "+8"]
    text = kubeflow_compiler.to_yaml({"labels": words, "name": "digits 1"}, {})
    assert [line[2:] for line in text.splitlines() if line.startswith("- ")] == [f"'{word}'" for word in words]
    assert next(iter(yaml.safe_load_all(text))) == {"labels": words, "name": "digits 1"}
    assert "name: digits 1" in text


def test_every_input_is_given_by_somebody(package):
    pipeline = package.pipeline
    assert pipeline["schemaVersion"].startswith("2.1")
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


@pytest.mark.parametrize(
    ("name", "cpu", "memory"), [("Trainer", "8", "32Gi"), ("CsvExampleGen", "2", "8Gi"), ("Evaluator", "500m", "2Gi")]
)
def test_each_step_has_its_machine(taxi, name, cpu, memory):
    """TFX drops the memory."""
    resources = executors(taxi.pipeline)[f"{name}_executor"]["container"]["resources"]
    assert (resources["resourceCpuLimit"], resources["resourceMemoryLimit"]) == (cpu, memory)


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
    configs = package.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    tuner, trainer = (executors(package.pipeline)[f"{name}_executor"]["container"] for name in ("Tuner", "Trainer"))
    assert tuner["resources"] == trainer["resources"]
    assert tuner.get("env") == trainer.get("env")
    assert configs["Tuner_executor"] == configs["Trainer_executor"]
    assert tasks["Tuner"]["retryPolicy"] == tasks["Trainer"]["retryPolicy"]
    tuner_inputs, trainer_inputs = (tasks[name]["inputs"]["parameters"] for name in ("Tuner", "Trainer"))
    folders = [inputs.pop("checkpoint_dir")["runtimeValue"]["constant"] for inputs in (tuner_inputs, trainer_inputs)]
    assert folders == ["/shared/training/checkpoints"] * 2
    tuner_inputs.pop("custom_config"), trainer_inputs.pop("custom_config")
    assert {name: tuner_inputs[name] for name in trainer_inputs} == trainer_inputs
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
    assert launcher["training"] == "elsewhere", "whatever a run asks for: this step has no accelerator"
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


def test_settings_of_a_bucket_are_no_part_of_a_models_address(tmp_path):
    """Kubeflow reads them from the root, and writes addresses without them."""
    settings = "?region=eu&endpoint=minio.example.com"
    kubeflow = {**TARGET, "pipeline_root": f"s3://bucket/root{settings}"}
    package = compiled(project(tmp_path, "taxi", targets={"kubeflow": kubeflow}))
    step = executors(package.pipeline)["latest-blessed-model_executor"]["container"]
    assert step["args"][-2:] == ["--pipeline-root", "s3://bucket/root"]
    assert package.pipeline["defaultPipelineRoot"] == f"s3://bucket/root{settings}"


@pytest.mark.parametrize("name", ["taxi", "digits"])
def test_the_whole_platform_document(name, request, expected):
    expected(f"platform/{name}", request.getfixturevalue(name).platform)


def test_the_same_again_is_the_same(taxi, taxi_file, command, tmp_path):
    again = tmp_path / "again.yaml"
    done = command("compile", taxi_file, "--target", "kubeflow", "-o", again, new_process=True)
    assert done.code == 0, done.output
    assert (tmp_path / "again.yaml").read_text() == taxi.to_text()
    assert done.output.splitlines()[-1] == f"{tmp_path}/again.yaml: taxi, 12 steps"
    done = CliRunner().invoke(main, ["compile", str(taxi_file), "--target", "kubeflow", "-o", "-"])
    assert (done.exit_code, done.stdout) == (0, taxi.to_text())
    os.mkfifo(pipe := tmp_path / "pipe")
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:  # noqa: S607
        CliRunner().invoke(main, ["compile", str(taxi_file), "--target", "kubeflow", "-o", str(pipe)])
        assert reader.communicate(timeout=60)[0] == taxi.to_text(), "what is not a file is not replaced"


def test_nothing_is_transformed_before_the_data_are_validated(tmp_path):
    package = compiled(project(tmp_path, "taxi", validate={"drift": {"fare": 0.1}}), "stop_on_anomalies=false")
    tasks = package.pipeline["root"]["dag"]["tasks"]
    baseline = tasks["ExampleValidator"]["inputs"]["artifacts"]["baseline"]["taskOutputArtifact"]
    assert baseline == {"producerTask": "last-data-import", "outputArtifactKey": "anomalies"}
    for task in ("Transform", "Sharder"):
        assert "ExampleValidator" in tasks[task]["dependentTasks"]
    declared = package.pipeline["root"]["inputDefinitions"]["parameters"]["stop_on_anomalies"]
    assert (declared["parameterType"], declared["defaultValue"]) == ("NUMBER_INTEGER", 0)


def test_the_span_is_a_parameter_that_the_step_resolves(tmp_path):
    data = {"csv": "/shared/data/{YYYY}-{MM}-{DD}", "window": 7}
    pipeline = compiled(project(tmp_path, "taxi", data=data), "span=2026-11-25").pipeline
    root = pipeline["root"]
    assert root["inputDefinitions"]["parameters"]["span"]["defaultValue"] == "2026-11-25"
    for task in ("CsvExampleGen", "CsvExampleGen-input"):
        parameters = root["dag"]["tasks"][task]["inputs"]["parameters"]
        assert parameters["last_span"] == {"componentInputParameter": "span"}
        assert json.loads(parameters["window"]["runtimeValue"]["constant"]) == {
            "size": 7,
            "skip_missing": False,
            "time_zone": "UTC",
        }
    # It would change the ExampleGen's key in the cache.
    inputs = {name: task.get("inputs", {}).get("parameters", {}) for name, task in root["dag"]["tasks"].items()}
    assert [name for name, parameters in inputs.items() if "scheduled_at" in parameters] == ["CsvExampleGen-input"]


def test_a_notification_is_sent_at_the_end_of_all_steps(notifying, notifying_file):
    root, within = notifying.pipeline["root"], notifying.pipeline["components"]["exit-handler-1"]
    assert set(root["dag"]["tasks"]) == {"exit-handler-1", "notify"}
    assert root["dag"]["tasks"]["notify"]["dependentTasks"] == ["exit-handler-1"]
    assert root["dag"]["tasks"]["notify"]["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    assert notifying.num_steps == len(within["dag"]["tasks"]) + 1
    assert within["inputDefinitions"] == root["inputDefinitions"], "with their defaults"
    _, _, _, text = executors(notifying.pipeline)["notify_executor"]["container"]["args"]
    settings = Settings(**json.loads(text))
    assert (settings.pipeline, settings.urls, settings.when) == ("digits", "NOTIFY_URLS", ["failed"])
    assert VALIDATOR in settings.steps
    assert set(settings.steps) == {name for name in within["dag"]["tasks"] if not name.endswith("-import")}
    config = notifying.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["notify_executor"]
    assert config["secretAsEnv"][0]["keyToEnv"] == [{"envVar": "NOTIFY_URLS", "secretKey": "urls"}]
    target = KubeflowTarget(loader.load(notifying_file))
    assert not [line for line in target.find_warnings() if "notify" in line]
    with pytest.raises(ConfigurationError, match="give the component another id"):
        kubeflow_compiler.add_exit_step(notifying.pipeline, target.spec.notify, target.settings)


def test_addresses_of_notifications_that_no_secret_sets(tmp_path):
    target = KubeflowTarget(loader.load(project(tmp_path, "digits", notify={"urls": "NOTIFY_URLS"})))
    (warning,) = (line for line in target.find_warnings() if "notify" in line)
    assert warning.endswith("write targets.kubeflow.secrets: [{name: SECRET, env: {NOTIFY_URLS: KEY}}]")
