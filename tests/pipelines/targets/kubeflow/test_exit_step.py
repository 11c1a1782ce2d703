"""Tests the step that sends the notification about a run."""

import json

import pytest
from compiled_for_kubeflow import TARGET, compiled, project

from tfx_distribute.pipelines.notify.kubeflow_step import VALIDATOR, Settings
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.targets.kubeflow import exit_step
from tfx_distribute.pipelines.targets.kubeflow.target import KubeflowTarget
from tfx_distribute.trainer_module.errors import ConfigurationError

NOTIFY = {"urls": "NOTIFY_URLS", "when": ["failed"]}
SECRET = {"name": "notify", "env": {"NOTIFY_URLS": "urls"}}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    target = {**TARGET, "host": "https://kubeflow.example.com/pipeline", "secrets": [SECRET]}
    return project(tmp_path_factory.mktemp("digits"), "digits", notify=NOTIFY, targets={"kubeflow": target})


@pytest.fixture(scope="module")
def package(file):
    return compiled(file)


def test_it_waits_for_the_end_of_all_others(package):
    tasks = package.pipeline["root"]["dag"]["tasks"]
    assert set(tasks) == {"exit-handler-1", "notify"}
    assert tasks["notify"]["dependentTasks"] == ["exit-handler-1"]
    assert tasks["notify"]["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    within = package.pipeline["components"]["exit-handler-1"]
    assert {"Trainer", "Pusher"} < set(within["dag"]["tasks"])
    assert package.num_steps == len(within["dag"]["tasks"]) + 1


def test_parameters_reach_the_steps_with_their_defaults(package):
    root = package.pipeline["root"]["inputDefinitions"]["parameters"]
    assert package.pipeline["components"]["exit-handler-1"]["inputDefinitions"]["parameters"] == root
    assert root["strategy"]["defaultValue"]
    passed_on = package.pipeline["root"]["dag"]["tasks"]["exit-handler-1"]["inputs"]["parameters"]
    assert passed_on == {name: {"componentInputParameter": name} for name in root}


def test_it_knows_what_to_tell_and_gets_the_addresses_from_the_secret(package, file):
    executors = package.pipeline["deploymentSpec"]["executors"]
    _, _, _, text = executors["notify_executor"]["container"]["args"]
    settings = Settings(**json.loads(text))
    assert (settings.pipeline, settings.urls, settings.when) == ("digits", "NOTIFY_URLS", ["failed"])
    assert VALIDATOR in settings.steps
    tasks = package.pipeline["components"]["exit-handler-1"]["dag"]["tasks"]
    assert set(settings.steps) == {name for name in tasks if not name.endswith("-import")}  # which has no container
    config = package.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["notify_executor"]
    assert config["secretAsEnv"][0]["keyToEnv"] == [{"envVar": "NOTIFY_URLS", "secretKey": "urls"}]
    assert not [line for line in KubeflowTarget(loader.load(file)).find_warnings() if "notify" in line]


def test_addresses_that_no_secret_sets(tmp_path):
    target = KubeflowTarget(loader.load(project(tmp_path, "digits", notify=NOTIFY)))
    (warning,) = (line for line in target.find_warnings() if "notify" in line)
    assert warning.endswith("write targets.kubeflow.secrets: [{name: SECRET, env: {NOTIFY_URLS: KEY}}]")


def test_a_component_with_its_name(package, file):
    spec = loader.load(file)
    with pytest.raises(ConfigurationError, match="give the component another id"):
        exit_step.add(package.pipeline, spec.notify, KubeflowTarget(spec).settings)
