"""Tests Beam's options made from the setting, and how Beam parses them."""

import json
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from pydantic import ValidationError

from tfx_distribute.pipelines.spec.beam import Beam, check_local, make_pipeline_args
from tfx_distribute.trainer_module.errors import ConfigurationError

DATAFLOW = {"runner": "dataflow", "project": "p", "region": "europe-west4", "temp_location": "gs://b/tmp"}


PORTABLE = {"runner": "portable", "job_endpoint": "prism:8099"}
RUNNER = "--runner=tfx_distribute.components.beam.portable_runner.PortableRunner"
DIRECT = "--runner=tfx_distribute.components.beam.direct_runner.DirectRunner"
NONE = "--sdk_container_image=none"  # keeps TFX from packaging itself for remote machines


@pytest.mark.parametrize(
    ("setting", "arguments"),
    [
        ({}, [DIRECT, NONE]),
        ({"direct_num_workers": 1}, [DIRECT, NONE, "--direct_running_mode=in_memory", "--direct_num_workers=1"]),
        (
            {"direct_num_workers": 4},
            [DIRECT, NONE, "--direct_running_mode=multi_processing", "--direct_num_workers=4"],
        ),
        (
            {**DATAFLOW, "options": {"max_num_workers": 8, "use_public_ips": False, "experiments": ["a", "b"]}},
            [
                *("--runner=DataflowRunner", "--project=p", "--region=europe-west4", "--temp_location=gs://b/tmp"),
                *("--max_num_workers=8", "--no_use_public_ips", "--experiments=a", "--experiments=b"),
            ],
        ),
        (
            {**PORTABLE, "environment_type": "EXTERNAL", "environment_config": "localhost:50000"}
            | {"options": {"artifact_endpoint": "prism:8098", "job_server_timeout": 90}},
            [
                *(RUNNER, NONE, "--job_endpoint=prism:8099", "--environment_type=EXTERNAL"),
                *("--environment_config=localhost:50000", "--job_server_timeout=90", "--artifact_endpoint=prism:8098"),
            ],
        ),
        (
            {**PORTABLE, "environment_type": "PROCESS", "environment_config": "/opt/worker"},
            [
                *(RUNNER, NONE, "--job_endpoint=prism:8099", "--environment_type=PROCESS"),
                *('--environment_config={"command": "/opt/worker", "env": {}}', "--job_server_timeout=40"),
            ],
        ),
        (
            {**PORTABLE, "environment_type": "DOCKER", "environment_config": "team/digits:1"}
            | {"options": {"extra_packages": ["mine.tar.gz"]}},
            [
                *(RUNNER, NONE, "--job_endpoint=prism:8099", "--environment_type=DOCKER"),
                *("--environment_config=team/digits:1", "--job_server_timeout=40", "--extra_packages=mine.tar.gz"),
            ],
        ),
    ],
)
def test_options(setting, arguments):
    actual = make_pipeline_args(Beam(**setting))
    assert actual == arguments
    # Beam drops unknown options with a warning.
    read = PipelineOptions(actual).get_all_options()
    for word in actual:
        name, _, value = word[2:].removeprefix("no_").partition("=")
        assert value in (str(read[name]), "") or value in read[name], word


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"runner": "dataflow", "project": "p"}, "runner: dataflow needs region, temp_location"),
        ({"region": "r"}, "region: the runner 'direct' has no such option; leave it out, or write runner: dataflow"),
        ({**DATAFLOW, "temp_location": "here"}, "temp_location"),
        ({**DATAFLOW, "direct_num_workers": 2}, "write runner: direct"),
        ({"runner": "portable", "environment_type": "DOCKER"}, "runner: portable needs job_endpoint"),
        ({**PORTABLE, "job_endpoint": "http://prism:8099"}, "job_endpoint"),
        ({**PORTABLE, "environment_type": "EXTERNAL"}, "environment_config: is missing; EXTERNAL needs the HOST:PORT"),
        ({**PORTABLE, "environment_type": "PROCESS"}, "environment_config: is missing; PROCESS needs the path of a program"),
        ({"options": {"sav_main_session": True}}, "Beam has no option 'sav_main_session'"),
        ({"options": {"runner": "DirectRunner"}}, "runner is a setting of its own; write it under beam"),
    ],
)
def test_wrong_and_missing_options_are_refused(setting, message):
    with pytest.raises(ValidationError, match=message):
        Beam(**setting)


def test_workers_in_the_environment_that_a_run_here_has():
    setting = {**PORTABLE, "environment_type": "PROCESS", "environment_config": "/run"}
    arguments = make_pipeline_args(Beam(**setting), module_folder=Path("/module"))
    config = next(word.partition("=")[2] for word in arguments if word.startswith("--environment_config="))
    assert json.loads(config) == {"command": "/run", "env": {"PYTHONPATH": "/module"}}


def test_containers_have_the_image_of_the_steps():
    setting = Beam(**PORTABLE, environment_type="DOCKER")
    assert "--environment_config=team/digits:1" in make_pipeline_args(setting, "team/digits:1")


def test_steps_in_containers_use_one_process():
    """Their pods have the memory that the user has asked for."""
    assert "--direct_num_workers=1" in make_pipeline_args(Beam(), "team/digits:1")
    assert "--direct_num_workers=0" in make_pipeline_args(Beam(direct_num_workers=0), "team/digits:1")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (DATAFLOW, "beam.runner: the machines of Dataflow cannot read this machine's files"),
        ({**PORTABLE, "environment_type": "DOCKER"}, "Beam's own image has neither TFX nor tfx-distribute"),
    ],
)
def test_settings_that_a_local_run_refuses(setting, message):
    with pytest.raises(ConfigurationError, match=message):
        check_local(Beam(**setting))
