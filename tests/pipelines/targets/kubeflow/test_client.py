"""Tests submitting to Kubeflow Pipelines, and following, listing and cancelling runs.

The real `kfp.Client` talks to a stand-in of the API server.
"""

import json
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import example_project
import kfp
import pytest
import yaml
from click.testing import CliRunner, Result
from kfp_api import SERVICE_ACCOUNT, KfpApi

from tfx_distribute.components import timeouts
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.targets.kubeflow import client as kubeflow_client
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.errors import ConfigurationError

ROOT = "gs://bucket/root"
SETTINGS = KubeflowSettings(image="registry/digits:1", pipeline_root=ROOT)

pytestmark = pytest.mark.timeout(100)


@pytest.fixture(autouse=True)
def no_kfp_configuration(tmp_path, monkeypatch) -> None:
    """Hides the kfp configuration of the user who runs the tests; avoids waiting."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    # kfp looks up the paths of its files when it is imported.
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(home / "context.json"))
    monkeypatch.setattr(kfp.Client, "_NAMESPACE_PATH", str(home / "namespace"))
    monkeypatch.setattr(kfp.client.auth, "LOCAL_KFP_CREDENTIAL", str(home / "credentials.json"))
    for name in ("ENDPOINT", "UI_ENDPOINT", "IAP_OAUTH2_CLIENT_ID", "APP_OAUTH2_CLIENT_ID", "APP_OAUTH2_CLIENT_SECRET"):
        monkeypatch.delenv(f"KF_PIPELINES_{name}", raising=False)
    monkeypatch.delenv("KFP_EXISTING_TOKEN", raising=False)
    monkeypatch.setattr(timeouts, "RUN_POLL_SECONDS", 0.01)


@pytest.fixture
def api() -> Iterator[KfpApi]:
    with KfpApi() as started:
        yield started


@pytest.fixture
def nothing_listens() -> Iterator[str]:
    """Yields the address of a bound port, on which nothing else can listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


STEP = {"componentRef": {"name": "step"}}
PARAMETERS = {"epochs": {"parameterType": "NUMBER_INTEGER", "defaultValue": 2}, "name": {"parameterType": "STRING"}}
# A pipeline of two steps, one of which sets its own caching options.
PACKAGE = yaml.safe_dump_all(
    [
        {
            "pipelineInfo": {"name": "mine"},
            "schemaVersion": "2.1.0",
            "root": {
                "inputDefinitions": {"parameters": PARAMETERS},
                "dag": {"tasks": {"Reader": STEP, "Trainer": {**STEP, "cachingOptions": {"enableCache": True}}}},
            },
            "components": {"step": {"executorLabel": "step"}},
            "deploymentSpec": {"executors": {"step": {"container": {"image": "image"}}}},
        },
        {"platforms": {"kubernetes": {"deploymentSpec": {"executors": {"step": {"nodeSelector": {}}}}}}},
    ]
)


def connect(api: KfpApi, **login: str) -> kubeflow_client.KubeflowRuns:
    return kubeflow_client.KubeflowRuns(api.url, **login)


def submit(pipelines: kubeflow_client.KubeflowRuns, text: str = PACKAGE, **options: Any) -> kubeflow_client.Submitted:
    return pipelines.submit("mine", text, **{"settings": SETTINGS, "arguments": {"name": "x"}, **options})


def story(api: KfpApi, *chapters: Callable[[], object]) -> None:
    """Advances the run by a chapter at each request; the last chapter repeats."""
    coming = list(chapters)

    def before(method: str, path: str) -> None:
        if method == "GET" and "/runs/" in path:
            chapter = coming.pop(0) if len(coming) > 1 else coming[0]
            chapter()

    api.before = before


def state(api: KfpApi, name: str, tasks: dict[str, str] | None = None, error: str | None = None) -> Callable[[], None]:
    """Returns a chapter of a story that sets the state of all runs."""

    def chapter() -> None:
        for run_id in api.runs:
            api.set_state(run_id, name, tasks, error)

    return chapter


# Tests of submitting.


def test_first_a_pipeline_and_then_versions_of_it(api):
    for _ in range(3):  # in the same second, mostly
        submit(connect(api))
    assert [pipeline["name"] for pipeline in api.pipelines] == ["mine"]
    assert [uploaded.pipeline for uploaded in api.packages] == ["mine"] * 3
    assert len({run.display_name for run in api.runs.values()}) == 3, "the name of the version"
    assert {(run.experiment, run.service_account) for run in api.runs.values()} == {("Default", SERVICE_ACCOUNT)}
    assert [run.package for run in api.runs.values()] == api.packages
    assert api.packages[-1].text == PACKAGE


def test_everybody_finds_the_pipelines_of_their_namespace():
    with KfpApi(multi_user=True) as api:
        for namespace in ("ann", "ben", "ann"):
            submit(connect(api, namespace=namespace))
        assert [pipeline["namespace"] for pipeline in api.pipelines] == ["ann", "ben"]
        assert [experiment["namespace"] for experiment in api.experiments] == ["ann", "ben"]
        assert [run.experiment_id for run in api.runs.values()] == [
            api.experiments[index]["experiment_id"] for index in (0, 1, 0)
        ]
        with pytest.raises(ConfigurationError, match="--namespace: is missing; .* has several users"):
            connect(api)


def test_refused_package(api):
    pipelines = connect(api)
    with pytest.raises(ConfigurationError) as caught:
        submit(pipelines, "nothing")
    assert str(caught.value) == f"Kubeflow Pipelines at {api.url} refuses: 400: unknown template format"


# Tests of addresses and credentials.


def test_nothing_listens(nothing_listens, caplog):
    with pytest.raises(ConfigurationError) as caught:
        kubeflow_client.KubeflowRuns(nothing_listens)
    message = str(caught.value)
    assert message.startswith(f"--host: Kubeflow Pipelines does not answer at {nothing_listens} (Failed to establish")
    assert "write the address of its API, such as http://localhost:8080 after `kubectl port-forward" in message
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# Tests of following a run.


def test_reports_each_state_of_a_step_once(api):
    pipelines = connect(api)
    run_id = submit(pipelines).id
    running = state(api, "RUNNING", {"Reader": "RUNNING", "Trainer": "PENDING"})
    story(
        api,
        lambda: None,
        *[running] * 3,
        state(api, "RUNNING", {"Reader": "SKIPPED", "Trainer": "RUNNING"}),
        state(api, "PAUSED"),
        state(api, "SUCCEEDED", {"Trainer": "SUCCEEDED"}),
    )
    lines: list[str] = []
    assert pipelines.follow(run_id, lines.append)
    assert [line.split() for line in lines] == [
        ["Reader", "running"],
        ["Trainer", "pending"],
        ["Reader", "skipped"],
        ["Trainer", "running"],
        ["Trainer", "succeeded"],
        ["ended", "succeeded"],
    ]


@pytest.mark.parametrize(
    "trouble",
    [
        lambda api: api.fail(500, times=3),
        lambda api: api.silent(0.3),
    ],
    ids=["500", "silent"],
)
def test_trouble_while_waiting_is_survived(api, monkeypatch, trouble):
    pipelines = connect(api)
    run_id = submit(pipelines).id
    monkeypatch.setattr(timeouts, "HTTP_SECONDS", (5.0, 0.1))
    story(api, state(api, "RUNNING"), lambda: trouble(api), state(api, "SUCCEEDED"))
    assert pipelines.follow(run_id, print)


def test_patience_ends(api, monkeypatch, caplog):
    pipelines = connect(api)
    run_id = submit(pipelines).id
    monkeypatch.setattr(timeouts, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(timeouts, "HTTP_SECONDS", (5.0, 0.1))
    api.silent(600)
    with pytest.raises(ConfigurationError, match="--host: Kubeflow Pipelines does not answer at"):
        pipelines.follow(run_id, print)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_page_to_log_in_on(api):
    """A full Kubeflow answers unknown users with a page and status 200.

    kfp reads it as a run without a state, which never ends.
    """
    api.login_page = True
    pipelines = connect(api)
    run_id = submit(pipelines).id
    story(api, state(api, "RUNNING"), lambda: setattr(api, "require_token", "another"))
    with pytest.raises(ConfigurationError, match="does not let you in .*a page answers, not the API"):
        pipelines.follow(run_id, print)
    with pytest.raises(ConfigurationError, match="is not the API of Kubeflow Pipelines; if it is a login page"):
        connect(api)


# Tests of the command line.


@pytest.fixture
def command(api, tmp_path) -> Callable[..., Result]:
    """Submits the digits in this process."""
    kubeflow = {"image": "registry/digits:1", "pipeline_root": ROOT, "host": api.url}
    file = example_project.copy(tmp_path / "digits", "digits", push={}, targets={"kubeflow": kubeflow})
    return lambda *words: CliRunner().invoke(main, ["submit", str(file), "--target", "kubeflow", *words])


def test_command_submits(api, command):
    arguments = ["-p", "epochs=3", "-p", "learning_rate=0.01", "--experiment", "ours", "--run-name", "tonight"]
    result = command(*arguments, "--service-account", "trainer", "--no-cache")
    assert result.exit_code == 0, result.output
    (run,) = api.runs.values()
    assert result.output == f"run      {api.url}/#/runs/details/{run.run_id}\n"
    assert set(run.runtime_config["parameters"]) == {"epochs", "hparams"}
    assert run.runtime_config["parameters"]["epochs"] == 3
    assert json.loads(run.runtime_config["parameters"]["hparams"]) == {"hidden_units": 128, "learning_rate": 0.01}
    assert run.runtime_config["pipeline_root"] == ROOT
    assert (run.experiment, run.display_name, run.service_account) == ("ours", "tonight", "trainer")
    tasks = run.package.spec["root"]["dag"]["tasks"]
    assert "Trainer" in tasks
    assert not [name for name, task in tasks.items() if task.get("cachingOptions", {}).get("enableCache")]


@pytest.mark.parametrize(
    ("ended", "error", "code"),
    [("SUCCEEDED", None, 0), ("FAILED", "the node is gone", 1), ("CANCELED", None, 1)],
)
def test_command_waits(api, command, ended, error, code):
    story(api, state(api, "RUNNING", {"Trainer": "RUNNING"}), state(api, ended, {"Trainer": ended}, error))
    result = command("--wait")
    (run,) = api.runs.values()
    lines = [line.split() for line in result.output.splitlines()]
    assert result.exit_code == code, result.output
    assert lines[0] == ["run", f"{api.url}/#/runs/details/{run.run_id}"]
    assert [line for line in lines if line[0] == "Trainer"] == [["Trainer", "running"], ["Trainer", ended.lower()]]
    assert lines[-1] == ["ended", ended.lower()]
    assert ("the node is gone" in result.output.splitlines()) == bool(error)
    assert run.runtime_config.get("parameters", {}) == {}


def test_command_that_is_refused(api, command):
    api.require_token = "secret"  # noqa: S105
    result = command()
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert line.startswith(f"Error: --host: {api.url} does not let you in (401: ")
    assert "Jwt is missing); see the options --existing-token and --namespace" in line
    assert command("--existing-token", "secret").exit_code == 0
    assert len(api.runs) == 1


def runs(api: KfpApi, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["runs", *arguments, "--target", "kubeflow", "--host", api.url])


def test_list_in_pages(api, monkeypatch):
    monkeypatch.setattr(kubeflow_client, "PAGE_SIZE", 2)
    connected = connect(api)
    ids = [submit(connected, display_name=f"run {number}").id for number in range(5)]
    assert [run.id for run in connected.list_runs(10)] == ids[::-1]
    assert [run.name for run in connected.list_runs(3)] == ["run 4", "run 3", "run 2"]


def test_commands_of_runs(api):
    run_id = submit(connect(api), display_name="mine", arguments={"epochs": 3}).id
    steps = {"Reader": "SUCCEEDED", "Trainer": "RUNNING"}
    api.set_state(run_id, "RUNNING", {"exit-handler-1": "RUNNING", **steps, "exit-handler-1.onExit": "PENDING"})
    listed = runs(api, "list")
    assert listed.exit_code == 0, listed.output
    assert listed.output.splitlines()[1].split()[:3] == [run_id, "mine", "running"]

    shown = runs(api, "show", run_id, "--output", "json")
    document = json.loads(shown.output)
    assert (document["state"], document["parameters"], document["seconds"]) == ("running", {"epochs": 3}, None)
    # What the backend and we add is left out.
    assert [(task["name"], task["state"]) for task in document["tasks"]] == [("Reader", "succeeded"), ("Trainer", "running")]
    assert "Trainer  running" in runs(api, "show", run_id).output

    api.runs[run_id].state = "SUCCEEDED"
    assert "Trainer  unknown" in runs(api, "show", run_id).output

    api.runs[run_id].state = "RUNNING"
    cancelled = runs(api, "cancel", run_id)
    assert cancelled.output == f"{run_id}: asked to end\n"
    assert api.runs[run_id].state == "CANCELING"


def test_errors_of_commands(api):
    unknown = runs(api, "show", "unknown")
    assert (unknown.exit_code, unknown.output.count("\n")) == (2, 1)
    assert "404" in unknown.output
    assert "not found" in unknown.output
    assert "RUN: is missing" in runs(api, "show").output
    mixed = runs(api, "list", "--root", "runs/digits")
    assert mixed.output == "Error: --root: goes with --target local, not with --target kubeflow\n"
    mixed = runs(api, "list", "--region", "europe-west4")
    assert mixed.output == "Error: --region: goes with --target vertex, not with --target kubeflow\n"


def test_schedules(api):
    pipelines = connect(api)
    times = {"cron": "0 3 * * 1-5", "start_time": "2026-12-01T00:00:00Z", "max_concurrent_run_count": 2, "no_catchup": True}
    first = submit(pipelines, arguments={"epochs": 3}, display_name="nightly", schedule=times)
    second = submit(pipelines, schedule={"cron": "0 * * * *"})
    made = api.recurring_runs[first.id]
    assert made["trigger"]["cron_schedule"] == {"cron": "0 0 3 * * 1-5", "start_time": "2026-12-01T00:00:00Z"}
    assert (made["max_concurrency"], made["no_catchup"]) == (2, True)
    assert made["runtime_config"] == {"parameters": {"epochs": 3}, "pipeline_root": "gs://bucket/root"}
    assert api.recurring_runs[second.id]["max_concurrency"] == 1

    def schedules(*words: str) -> Result:
        return CliRunner().invoke(main, ["schedules", *words, "--target", "kubeflow", "--host", api.url])

    assert schedules("pause", first.id).output == f"{first.id}: paused\n"
    listed = json.loads(schedules("list", "--output", "json").stdout)
    assert [(each["id"], each["state"], each["cron"]) for each in listed] == [
        (second.id, "enabled", "0 0 * * * *"),
        (first.id, "disabled", "0 0 3 * * 1-5"),
    ]
    assert schedules("resume", first.id).exit_code == 0
    assert api.recurring_runs[first.id]["status"] == "ENABLED"
    run = submit(pipelines).id
    api.runs[run].recurring_run_id = second.id
    refused = schedules("delete", second.id)
    assert refused.exit_code == 2
    assert f"would delete the pods of run {run} with it" in refused.output
    api.set_state(run, "FAILED", {})
    assert schedules("delete", second.id).exit_code == 0
    assert "nightly" in schedules("list").output
    gone = schedules("pause", second.id)
    assert (gone.exit_code, f"Job {second.id} not found" in gone.output) == (2, True), gone.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cron", "0 3 * *"), "--cron: '0 3 * *' has 4 fields; write five"),
        (("--cron", "TZ=Europe/Rome 0 3 * * *"), "--cron: Kubeflow Pipelines has one time zone for all schedules"),
        (("--cron", "0 3 * * *", "--wait"), "--wait: is for one run, without --cron"),
        (("--no-catchup",), "--no-catchup: belongs to a schedule; write --cron too"),
        (("--labels", "a=b"), "--labels: goes with --target vertex"),
    ],
)
def test_schedules_that_are_refused(words, message, request):
    digits = str(request.config.rootpath / "examples" / "digits" / "kubeflow.yaml")
    refused = CliRunner().invoke(main, ["submit", digits, "--target", "kubeflow", *words])
    assert (refused.exit_code, message in refused.output) == (2, True), refused.output
