"""Tests the main job as a user runs it."""

import re
import runpy
from pathlib import Path

import pytest
import tensorflow as tf
from doc_examples import python_blocks
from forked import run_container
from tf_examples import make_example

pytestmark = pytest.mark.e2e

BEFORE_TRAINING = ("DigitsExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform")
# The number of workers determines the number of shards if it is not set.
AFTER = ("Sharder", "Trainer", "Evaluator", "Pusher")


def nodes(output: str) -> dict[str, bool]:
    """Returns for each node shown whether it came from the cache."""
    return {name: how == "cached" for name, how in re.findall(r"✓ (\S+) +(cached|[\d.]+ s)", output)}


@pytest.mark.timeout(900)
def test_from_one_command_to_a_pushed_model_and_back_to_cache(command, forked, request, tmp_path):
    pipeline = request.config.rootpath / "examples" / "digits" / "pipeline.yaml"

    # A new process, as a user's. Its hash seed is not that of forks, so that the cache
    # of the third run shows that nothing depends on it.
    workers = ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")
    first = command("run", pipeline, *workers, new_process=True)
    assert first.code == 0, first.output
    assert nodes(first.output) == dict.fromkeys((*BEFORE_TRAINING, *AFTER), False)
    assert re.search(r"step \d+/460 ", first.output), "a line of progress"
    assert "trained " in first.output
    assert "multi_worker_mirrored, 2 replicas, global batch 64, 460 steps" in first.output
    accuracy = float(re.search(r"SparseCategoricalAccuracy +([\d.]+) +>= 0.95 met", first.output).group(1))
    assert accuracy >= 0.95
    pushed = Path(re.search(r"^model +(/.*)$", first.output, re.M).group(1))
    assert pushed.parent == tmp_path / "runs" / "digits" / "serving"
    assert_serves(pushed)
    ask = request.config.rootpath / "examples" / "digits" / "ask.py"
    code, answer = run_container(["python", str(ask), str(pushed.parent)], {}, tmp_path / "answer", forked)
    assert code == 0, answer
    assert answer.splitlines()[-1] in (request.config.rootpath / "README.md").read_text().splitlines()
    assert_answers_as_documented(pushed, request.config.rootpath / "docs" / "evaluating-and-pushing.md", tmp_path)
    log = Path(re.search(r"^log +(/.*)$", first.output, re.M).group(1))
    assert "INFO:absl" in log.read_text(), "TFX's noise is in the log"
    assert "INFO:absl" not in first.output, "and only there"
    assert {path.name for path in log.parent.iterdir()} == {"run.log", "fork-server.log", "chief-0.log", "worker-0.log"}

    # The report has the curves of both processes, and all numbers without a script.
    run_id = log.parent.name
    made = command("report", run_id, "-o", tmp_path / "report.html")
    assert (made.code, made.output.splitlines()[-1]) == (0, f"{tmp_path}/report.html")
    assert "missing:" not in made.output
    page = (tmp_path / "report.html").read_text()
    for shown in ("worker 0", "chief-0", "wait for peers", "SparseCategoricalCrossentropy", "1,414 examples", str(pushed)):
        assert shown in page

    # Another strategy: nodes that do not depend on it come from the cache.
    second = command("run", pipeline, "-p", "strategy=mirrored", "-p", "accelerator_count=2", "-p", "accelerator_type=cpu")
    assert second.code == 0, second.output
    assert nodes(second.output) == {**dict.fromkeys(BEFORE_TRAINING, True), **dict.fromkeys(AFTER, False)}
    assert "mirrored, 2 replicas, global batch 64, 460 steps" in second.output

    # Back to the first: all results are those from the cache, and its model is served
    # again. Then nothing changes.
    third = command("run", pipeline, *workers)
    assert third.code == 0, third.output
    assert nodes(third.output) == {**dict.fromkeys((*BEFORE_TRAINING, *AFTER), True), "Pusher": False}
    assert f"SparseCategoricalAccuracy      {accuracy:<10.6g}" in third.output
    versions = sorted(pushed.parent.iterdir())
    assert len(versions) == 3
    assert (versions[2] / "saved_model.pb").read_bytes() == (pushed / "saved_model.pb").read_bytes()
    again = command("run", pipeline, *workers)
    assert again.code == 0, again.output
    assert all(nodes(again.output).values())
    assert f"{versions[2]}\n" in again.output

    # A model below its threshold is not pushed, and has its own exit code.
    fourth = command("run", pipeline, "-p", "train_steps=1", "-p", "learning_rate=1e-4")
    assert fourth.code == 3, fourth.output
    assert re.search(r"SparseCategoricalAccuracy +[\d.]+ +>= 0.95 not met", fourth.output)
    assert "not pushed: thresholds are not met" in fourth.output
    assert len(list(pushed.parent.iterdir())) == 3

    listed = command("runs", "list").output.splitlines()[1:]
    assert [line.split()[2] for line in listed] == ["not", *["complete"] * 4]
    assert listed[-1].startswith(run_id)
    log_of_worker = command("runs", "logs", run_id, "--process", "worker-0")
    assert (log_of_worker.code, log_of_worker.output) == (0, (log.parent / "worker-0.log").read_text())


def assert_answers_as_documented(model: Path, document: Path, folder: Path) -> None:
    """The model answers the request that the document shows."""
    (code,) = python_blocks(document)
    (folder / "ask.py").write_text(re.sub(r'load\(".*"\)', f"load({str(model)!r})", code))
    assert runpy.run_path(str(folder / "ask.py"))["answers"]["outputs"].shape == (1, 10)


def assert_serves(model: Path) -> None:
    """Requests without a label get a probability for each digit."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    requests = [make_example(pixels=pixels) for pixels in digits.data[:200]]
    loaded = tf.saved_model.load(str(model))
    assert set(loaded.signatures) == {"serving_default", "transform_features"}
    probabilities = loaded.signatures["serving_default"](tf.constant(requests))["outputs"].numpy()
    assert probabilities.shape == (200, 10)
    assert (probabilities.argmax(axis=1) == digits.target[:200]).mean() > 0.95
    assert isinstance(tf.keras.models.load_model(str(model)), tf.keras.Model), "Keras loads it too"
