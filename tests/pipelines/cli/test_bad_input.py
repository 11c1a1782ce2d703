"""Tests bad input at the command line: a clear message, an exit code, and no loss."""

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from running import children
from small_project import LINE, LINEAR_MODEL, WAITS, write_project

from tfx_distribute.pipelines.cli.main import main

PIPELINE = """\
name: mine
module: model.py
data: {csv: data}
trainer:
  label: y
  parameters: {epochs: 1, per_replica_batch_size: 2}
"""


@pytest.fixture
def project(tmp_path) -> Path:
    return write_project(tmp_path, PIPELINE, LINEAR_MODEL, LINE).parent


def validate(project: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["validate", str(project / "pipeline.yaml"), *arguments])
    return result.exit_code, result.output


def test_good_project_is_valid(project):
    code, output = validate(project)
    assert (code, "valid (mine: build_model of" in output) == (0, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PIPELINE + "  custom_config: {a: 1}\n", "trainer.custom_config: is for a run_fn"),
        (PIPELINE.replace("  label: y\n", ""), "trainer.label: is missing; write the name of the feature"),
        (PIPELINE.replace("label: y", "label: {a: y}\n  example_weight: {b: x}"), "is for the outputs b"),
        (PIPELINE.replace("epochs: 1, ", ""), "the length of the training is missing; write train_steps or epochs"),
        (PIPELINE.replace("csv: data", "csv: nodata"), "nodata does not exist"),
        (PIPELINE + "transform: {}\n", "model.py has no function 'preprocessing_fn'"),
        (PIPELINE + "  base_model: nothere\n", "nothere does not exist; write the path of a model"),
        (PIPELINE + "  base_model: latest_blessed\n", "no model of this pipeline is ever blessed"),
        (PIPELINE + "  base_model: 3\n", "trainer.base_model: 3 is not allowed: input should be a valid"),
        (PIPELINE + "  base_model: {freeze: [d]}\n", "base_model: the path is missing; write it"),
        (PIPELINE + "  base_model: {freeze: [d(]}\n", "base_model.freeze: 'd(' is not valid: missing )"),
        (PIPELINE + "  base_model: {rename: {a: \\1}}\n", "rename: 'a' is not valid: invalid group reference 1"),
        (PIPELINE + "  base_model: {mismatch: warn}\n", "base_model.mismatch: 'warn' is not allowed"),
    ],
)
def test_mistakes_in_the_pipeline_file(project, text, message):
    (project / "pipeline.yaml").write_text(text)
    code, output = validate(project)
    assert (code, message in output, "Traceback" in output) == (2, True, False), output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y,x\n1,2\n", "it has them in another order"),
        ("1,2\n", "it lacks x, y and it adds 1, 2; each file needs the header line"),
    ],
)
def test_mistakes_in_the_data(project, text, message):
    (project / "data" / "b.csv").write_text(text)
    code, output = validate(project)
    assert (code, message in output) == (2, True), output


TUNE = (
    "  hparams: {rate: 0.1, units: 8}\ntune:\n  objective: loss\n  max_trials: 2\n  space:\n    rate: {min: 0.1, max: 1}\n"
)


def test_a_search_needs_what_it_compares(project):
    (project / "pipeline.yaml").write_text(PIPELINE + TUNE.replace("    rate:", "    rat:"))
    message = "line 12: tune.space.rat: trainer.hparams has no such hyperparameter; it has rate, units; add rat there"
    assert message in validate(project)[1]
    splits = PIPELINE.replace("{csv: data}", "{csv: data, splits: {train: 1}}")
    (project / "pipeline.yaml").write_text(splits + TUNE.replace("loss", "val_loss"))
    assert "tune.objective: needs a split 'eval', and data.splits has train" in validate(project)[1]
    (project / "pipeline.yaml").write_text(PIPELINE + TUNE + "resources: {Tuner: {cpu: 4}}\n")
    assert "resources.Tuner: trials train on the machines of the Trainer" in validate(project)[1]
    hyperband = PIPELINE + TUNE.replace("max_trials: 2", "oracle: hyperband")
    (project / "pipeline.yaml").write_text(hyperband)
    assert validate(project)[0] == 0
    assert "tune.epochs: is missing; hyperband gives poor trials fewer epochs" in validate(project, "-p", "train_steps=9")[1]
    (project / "model.py").write_text("def run_fn(fn_args): ...\n")
    parameters = PIPELINE.replace("parameters: {epochs: 1, per_replica_batch_size: 2}", "parameters: {train_steps: 1}")
    (project / "pipeline.yaml").write_text(parameters + TUNE)
    assert "tune: the results of a run_fn have no metrics to compare" in validate(project)[1]


def test_each_target_has_checks_of_its_own(project):
    vertex = "{image: i, pipeline_root: 'gs://bucket/root', region: europe-west4}"
    text = PIPELINE.replace("csv: data", "csv: 'gs://bucket/data'").replace("epochs: 1", "epochs: 1, num_workers: 2")
    text = text.replace("epochs: 1", "epochs: 1, strategy: multi_worker_mirrored, all_reduce: reduction_server")
    resources = "resources: {Trainer: {accelerator: nvidia-l4}}\n"
    (project / "pipeline.yaml").write_text(f"{text}{resources}targets: {{vertex: {vertex}}}\n")
    code, output = validate(project, "--target", "vertex", "--project", "example-project")
    assert (code, "pipeline.yaml: valid for Vertex AI (mine: build_model of" in output) == (0, True), output
    for words, message in (
        ((), "all_reduce: reduction_server is Vertex AI's, and this machine has none"),
        (("--target", "local"), "all_reduce: reduction_server is Vertex AI's, and this machine has none"),
        (("--target", "kubeflow"), "targets.kubeflow: is missing"),
        (("--target", "vertex"), "targets.vertex.project: is missing; write it, or give --project with the command"),
        (("--project", "example-project"), "--project: goes with --target vertex, not with --target local"),
    ):
        code, output = validate(project, *words)
        assert (code, message in output) == (2, True), output


def test_mistakes_in_parameters(project):
    code, output = validate(project, "-p", "base_model=latest_blessed")
    assert (code, "with -p base_model=latest_blessed: trainer: base_model is latest_blessed" in output) == (2, True)
    code, output = validate(project, "-p", "base_model=nothere")
    assert (code, "nothere does not exist" in output) == (2, True)


@pytest.mark.e2e
def test_processes_of_this_machine_need_gpus_of_their_own(project, command, monkeypatch):
    """A run says so before its first component; validate is for any machine."""
    workers = ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    refused = command("run", project / "pipeline.yaml", *workers)
    assert "write accelerator_type=cpu, or fewer workers" in refused.output
    assert refused.code != 0
    assert "ExampleGen" not in refused.output
    assert validate(project, *workers)[0] == 0


@pytest.mark.e2e
def test_module_that_fails_while_training(project, command):
    """Shows the last lines, works after the fix, and keeps the earlier model."""
    run = project / "pipeline.yaml"
    (project / "pipeline.yaml").write_text(PIPELINE + "push: {}\n")
    (project / "model.py").write_text(LINEAR_MODEL.replace("    return model", "    raise RuntimeError('out of luck')"))
    bad = command("run", run)
    assert bad.code == 1
    assert "✗ Trainer" in bad.output
    assert "training process chief failed (exit code 1)" in bad.output
    assert "RuntimeError: out of luck" in bad.output

    (project / "model.py").write_text(LINEAR_MODEL)
    mended = command("run", run)
    assert mended.code == 0, mended.output
    assert "StatisticsGen           cached" in mended.output
    (pushed,) = (project / "runs" / "mine" / "serving").rglob("saved_model.pb")

    # A model that is not a number is never pushed. Nothing evaluates it.
    broken = 'Dense(1, "linear", False, tf.keras.initializers.Constant(float("nan")))'
    (project / "model.py").write_text(LINEAR_MODEL.replace("Dense(1)", broken))
    bad = command("run", run)
    assert bad.code == 1, bad.output
    assert "the loss is nan at the end of the training, so the model cannot be used and is not pushed; " in bad.output
    assert list((project / "runs" / "mine" / "serving").rglob("saved_model.pb")) == [pushed]


@pytest.mark.e2e
def test_module_that_does_not_import_fails_before_the_first_node(project, command):
    (project / "model.py").write_text("import not_there\n" + LINEAR_MODEL)
    run = command("run", project / "pipeline.yaml")
    assert run.code == 2
    text = re.sub(r"\s+", " ", run.output)
    assert re.search(
        r"'model' does not import: /\S*/model.py, line 1: ModuleNotFoundError: No module named 'not_there'", text
    )
    assert "✓" not in run.output
    assert "Traceback" not in run.output


@pytest.mark.e2e
def test_transforms_that_fail(project, command):
    (project / "pipeline.yaml").write_text(PIPELINE + "transform: {}\n")
    for code, messages in (
        ("return {'x': inputs['lost'], 'y': inputs['y']}", ["KeyError: 'lost'", "model.py, line 10, in preprocessing_fn"]),
        ("import sys; sys.exit(0)", [f"sys.exit(0) was called in {project}/model.py, line 10"]),
    ):
        (project / "model.py").write_text(f"{LINEAR_MODEL}\ndef preprocessing_fn(inputs):\n    {code}\n")
        run = command("run", project / "pipeline.yaml")
        assert run.code == 1
        assert [message for message in ("✗ Transform", *messages) if message not in run.output] == [], run.output


@pytest.mark.e2e
@pytest.mark.timeout(600)  # three runs
def test_interrupts_leave_no_process_and_the_same_command_goes_on(project, command, tmp_path_factory):
    (project / "pipeline.yaml").write_text(PIPELINE.replace("epochs: 1", "train_steps: 5000, steps_per_epoch: 100"))
    (project / "model.py").write_text(LINEAR_MODEL + WAITS)
    arguments = [sys.executable, "-m", "tfx_distribute.pipelines", "run", str(project / "pipeline.yaml")]
    temporary = tmp_path_factory.mktemp("temporary")
    continues = ""
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        with subprocess.Popen(
            arguments,
            cwd=project,
            env={**os.environ, "TMPDIR": str(temporary), "WAITS": "0.2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # If a shell started the tests in the background, they and their children
            # ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as run:
            first = "".join(itertools.takewhile(lambda line: not re.search(r"step [1-9]\d*/", line), run.stdout))
            servers = children(run.pid)
            started = [*servers, *(pid for server in servers for pid in children(server))]
            assert len(started) == 2, first  # the fork server, and the process that it forked
            os.kill(run.pid, number)
            rest, _ = run.communicate(timeout=60)
        assert run.returncode == code, rest
        assert continues in first + rest
        saved = re.search(r"saved after training step (\d+)", rest)
        assert saved, rest
        assert "Interrupted. The same command continues after the last component that finished and the last" in rest
        assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
        assert list(temporary.iterdir()) == []
        continues = f"continues after training step {saved[1]}"
    again = command("run", project / "pipeline.yaml")
    assert again.code == 0, again.output
    for shown in ("StatisticsGen           cached", continues, "5000 steps"):
        assert shown in again.output, again.output
    (states,) = project.glob("runs/*/artifacts/Trainer/.checkpoints")
    assert list(states.iterdir()) == []


@pytest.mark.parametrize(
    ("backfill", "message"),
    [
        ("2026-11-25", "is not a range; write FIRST..LAST"),
        ("2026-11-01..2026-11-02", "no data found at"),
        ("yesterday..today", "'today' is not a span of"),
    ],
)
def test_backfills_that_are_refused(backfill, message, command, project):
    (project / "pipeline.yaml").write_text(PIPELINE.replace("csv: data", "csv: 'days/{YYYY}-{MM}-{DD}'"))
    refused = command("run", project / "pipeline.yaml", "--backfill", backfill)
    assert (refused.code, message in refused.output) == (2, True), refused.output
