"""Tests Beam's options made from the setting, and how Beam parses them."""

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import create_runner
from pydantic import ValidationError

from tfx_distribute.pipelines.spec.beam import RUNNERS, Beam, check_local, make_pipeline_args
from tfx_distribute.trainer_module.errors import ConfigurationError

DATAFLOW = {"runner": "dataflow", "project": "p", "region": "europe-west4", "temp_location": "gs://b/tmp"}


DIRECT = "--runner=tfx_distribute.components.direct_runner.DirectRunner"
NONE = "--sdk_container_image=none"  # keeps TFX from packaging itself for remote machines


@pytest.mark.parametrize(
    ("setting", "arguments"),
    [
        ({}, [DIRECT, "--direct_running_mode=in_memory", "--direct_num_workers=1", NONE]),
        (
            {"direct_num_workers": 4},
            [DIRECT, "--direct_running_mode=multi_processing", "--direct_num_workers=4", NONE],
        ),
        (
            {**DATAFLOW, "max_num_workers": 8, "use_public_ips": False, "options": {"experiments": ["a", "b"]}},
            [
                *("--runner=DataflowRunner", "--project=p", "--region=europe-west4", "--temp_location=gs://b/tmp"),
                *("--max_num_workers=8", "--no_use_public_ips", "--experiments=a", "--experiments=b"),
            ],
        ),
        (
            {"runner": "flink", "flink_master": "host:8081", "parallelism": 4, "environment_type": "LOOPBACK"},
            ["--runner=FlinkRunner", "--flink_master=host:8081", "--parallelism=4", "--environment_type=LOOPBACK"],
        ),
        (
            {
                "runner": "spark",
                "spark_master_url": "spark://host:7077",
                "environment_type": "PROCESS",
                "environment_options": ["process_command=/run"],
            },
            [
                *("--runner=SparkRunner", "--spark_master_url=spark://host:7077", "--environment_type=PROCESS"),
                "--environment_options=process_command=/run",
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
        ({"runner": "flink"}, "runner: flink needs flink_master"),
        ({**DATAFLOW, "temp_location": "here"}, "temp_location"),
        ({"runner": "spark", "spark_master_url": "local", "direct_num_workers": 2}, "write runner: direct"),
        ({"runner": "nowhere"}, "runner"),
        ({"options": {"sav_main_session": True}}, "Beam has no option 'sav_main_session'; did you mean 'save_main_session'"),
        ({"options": {"runner": "DirectRunner"}}, "runner is a setting of its own; write it under beam"),
        ({"options": {"direct_running_mode": "multi_threading"}}, "direct_running_mode follows from direct_num_workers"),
    ],
)
def test_wrong_and_missing_options_are_refused(setting, message):
    with pytest.raises(ValidationError, match=message):
        Beam(**setting)


def test_options_are_called_as_beam_calls_them():
    known = {name for kind in PipelineOptions.__subclasses__() for name in kind([]).get_all_options()}
    assert {name for row in RUNNERS.values() for name in row.required + row.optional} <= known


def test_direct_is_a_runner_that_beam_creates():
    (word,) = [word for word in make_pipeline_args(Beam()) if word.startswith("--runner=")]
    assert isinstance(create_runner(word.removeprefix("--runner=")), FnApiRunner)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (DATAFLOW, "beam.runner: the machines of Dataflow cannot read this machine's files"),
        (
            {"runner": "flink", "flink_master": "host:8081", "environment_type": "LOOPBACK"},
            "with LOOPBACK Beam listens on all",
        ),
        ({"runner": "flink", "flink_master": "[auto]"}, r"LOOPBACK, the default for \[auto\], Beam listens on all"),
        ({"runner": "spark", "spark_master_url": "local[4]"}, r"LOOPBACK, the default for local\[4\], Beam listens on all"),
    ],
)
def test_settings_that_a_local_run_refuses(setting, message):
    with pytest.raises(ConfigurationError, match=message):
        check_local(Beam(**setting))


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"direct_num_workers": 2},
        {"runner": "flink", "flink_master": "localhost:8081"},
        {"runner": "flink", "flink_master": "[local]", "environment_type": "DOCKER"},
        {"runner": "spark", "spark_master_url": "spark://host:7077"},
    ],
)
def test_settings_that_a_local_run_takes(setting):
    check_local(Beam(**setting))
