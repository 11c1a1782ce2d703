"""Checks that models train the same under every strategy as with Keras's `fit`.

`fit` is the oracle. Trainings of some kinds are also interrupted and resumed.
"""

import json
import subprocess
import sys
from pathlib import Path

import kind_exceptions
import oracle_outcomes
import oracle_table
import pytest
import tfx_lines
from oracle_outcomes import SAME

TESTS = Path(__file__).resolve().parents[2]
KINDS = list(oracle_table.descriptions())
# Kinds that take the same way as others, or in which Keras does its own. `make models`
# measures them, and all other cells of the document.
ONLY_IN_THE_DOCUMENT = {
    "accumulated_per_example",
    "accumulated_sum",
    "adam_on_a_dense_table",
    "adam_with_repeated_rows",
    "added_loss_per_example",
    "autoencoder",
    "decoded_images",
    "embedding",
    "embedding_large",
    "embedding_masked",
    "frozen",
    "loss_of_one_element",
    "mixed_bfloat16",
    "nested_model",
    "no_label_own_steps",
    "one_hot_label",
    "own_metrics",
    "own_steps_run_eagerly",
    "own_steps_that_rename",
    "recurrent",
    "scalar_loss",
    "schedule_with_branch",
    "several_inputs",
    "several_weights",
    "shared_layer",
    "task_with_loss_object",
    "tied_weights",
}
# Keras version -> strategy -> kinds. Each other kind is compared with `fit` of one
# generation of Keras, on one replica or on two. Strategies with step runners, variables
# or exchanges of their own have the kinds that depend on these most; `one_device` runs
# the same code as `default`.
CELLS = {
    # Together, so that `fit` trains each kind once.
    2: {
        "default": ["augmented", "delegating_optimizer", "missing_gradient", "run_eagerly", "several_labels", "task"],
        "mirrored": ["dropout", "no_label"],
        "multi_worker_mirrored": ["accumulated_rows", "batch_norm", "mixed_float16"],
        "central_storage": ["legacy_optimizer", "own_variable"],
        "parameter_server": ["embedding_sparse", "own_steps"],
        "model_parallel": ["batch_norm", "own_apply_gradients"],
        "served": ["decoded_text", "own_steps"],
    },
    3: {
        "default": ["adamw", "global_clipnorm", "layers_in_lists", "two_outputs", "use_ema"],
        "mirrored": [
            "accumulated",
            "decoded_text",
            "dense",
            "embedding_ragged",
            "example_weights",
            "loss_per_example",
            "loss_scale_overflow",
            "own_steps",
            "regularised",
            "schedule",
            "step_weights",
            "sum_loss",
        ],
        "multi_worker_mirrored": ["batch_norm"],
        "served": ["embedding_ragged"],
    },
}
# The saved state of these differs from that of the others: slots of optimizers, random
# seeds, a scale of the loss, variables that steps change, and where a model or task
# keeps its variables. Only their training is interrupted and resumed.
RESUMED = (
    "accumulated",
    "adamw",
    "augmented",
    "batch_norm",
    "delegating_optimizer",
    "dropout",
    "layers_in_lists",
    "legacy_optimizer",
    "loss_scale_overflow",
    "mixed_float16",
    "own_steps",
    "own_variable",
    "schedule",
    "task",
    "use_ema",
)


def measure(folder: Path, keras_version: int, cells: dict[str, list[str]], seconds: float) -> dict[str, dict]:
    """Trains cells in separate processes; returns their outcomes by name.

    Args:
      folder: Folder for files.
      keras_version: Generation of Keras.
      cells: Strategy -> kinds.
      seconds: Time limit for each strategy.
    """
    out = folder / "outcomes.json"
    command = [sys.executable, str(TESTS / "fakes" / "oracle.py"), "--keras", str(keras_version), "--out", str(out)]
    command += ["--limit", str(seconds), "--resumed", *RESUMED]
    command += ["--cells", *(f"{strategy}:{','.join(kinds)}" for strategy, kinds in cells.items())]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    outcomes = json.loads(out.read_text())
    assert set(outcomes) == {f"{kind}/{strategy}" for strategy, kinds in cells.items() for kind in kinds}, process.stdout
    return outcomes


def differences(keras_version: int, outcomes: dict[str, dict]) -> dict[str, dict]:
    """Returns the outcomes that are not as docs/models.md says."""
    verdicts = oracle_table.load()[tfx_lines.installed()][str(keras_version)]
    return {
        cell: outcome
        for cell, outcome in outcomes.items()
        for kind, strategy in [cell.split("/")]
        if outcome["verdict"] != verdicts[kind][strategy]
    }


@pytest.mark.e2e
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("keras_version", [2, 3])
def test_models_train_as_the_document_says(tmp_path, keras_version):
    assert not differences(keras_version, measure(tmp_path, keras_version, CELLS[keras_version], seconds=1200))


def test_every_other_kind_is_compared_somewhere():
    verdicts = oracle_table.load()[tfx_lines.installed()]
    compared = {
        kind
        for version, cells in CELLS.items()
        for strategy, kinds in cells.items()
        for kind in kinds
        if strategy != "served" and verdicts[str(version)][kind][strategy] == SAME
    }
    assert compared == set(KINDS) - ONLY_IN_THE_DOCUMENT


@pytest.mark.parametrize(
    ("kind", "outcome", "verdict"),
    [
        ("dense", {"weights": 1e-5, "logs": 1e-4}, SAME),
        ("dense", {"weights": 1e-4}, "differs: the weights"),
        ("mixed_bfloat16", {"weights": 1e-4}, SAME),
        ("dense", {"logs": 1e-3}, "differs: the logged values"),
        ("dense", {"trace": "3: [('train end',)] instead of []"}, "differs: the calls of callbacks"),
        ("dense", {"refused": "strategy: no"}, "refused: strategy: no"),
        ("dense", {"not_compared": "`fit` raises ValueError"}, "not compared: `fit` raises ValueError"),
        ("dense", {"error": "ValueError: no"}, "fails: ValueError"),
    ],
)
def test_verdict(kind, outcome, verdict):
    assert oracle_outcomes.verdict(kind, oracle_outcomes.Outcome(**outcome)) == verdict


def test_calls_of_an_interrupted_training():
    def epoch(number):
        batches = [("train batch begin", 0), ("train batch begin", 1), ("train batch begin", 2)]
        return [("epoch begin", number), *batches, ("test begin",), ("test batch begin", 0), ("epoch end", number, ["loss"])]

    calls = [("train begin",), *epoch(0), *epoch(1), ("train end",)]
    assert oracle_outcomes.calls_until_interruption(calls) == [
        ("train begin",),
        ("epoch begin", 0),
        ("test begin",),
        ("epoch end", 0, ["loss"]),
        ("epoch begin", 1),
        ("test begin",),
    ]
    assert oracle_outcomes.calls_after_resuming(calls) == [("train begin",), ("epoch begin", 1), *calls[11:]]


def test_traces_are_compared():
    calls = [("epoch begin", 0), ("epoch end", 0, ["loss", "mae"])]
    assert oracle_outcomes.compare_calls(calls, [*calls]) == ""
    assert oracle_outcomes.compare_calls(calls, calls[:1]) == "1: [] instead of [('epoch end', 0, ['loss', 'mae'])]"
    assert oracle_outcomes.compare_calls(calls, [calls[0], ("epoch end", 0, ["mae"])], {"loss"}) == ""


def test_document_is_made_of_the_verdicts():
    assert oracle_table.DOCUMENT.read_text(encoding="utf-8") == oracle_table.document(oracle_table.load())


def test_every_cell_has_been_measured():
    cells = {str(version): {kind: dict.fromkeys(oracle_table.strategies(version)) for kind in KINDS} for version in (2, 3)}
    measured = {
        line: {version: {kind: dict.fromkeys(row) for kind, row in rows.items()} for version, rows in verdicts.items()}
        for line, verdicts in oracle_table.load().items()
    }
    assert measured == dict.fromkeys(tfx_lines.LINES, cells)


def test_every_exception_is_documented():
    """A kind that is not compared as the others are has a note."""
    dropped = {kind for kind, options in kind_exceptions.OPTIONS.items() if "drop_remainder" in options}
    exceptions = dropped.union(
        kind_exceptions.REFERENCES,
        kind_exceptions.NOISY,
        kind_exceptions.IGNORED_LOGS,
        kind_exceptions.EXTRA_LOGS,
        kind_exceptions.TOLERANCES,
    )
    assert set(kind_exceptions.NOTES) == exceptions
    assert all(oracle_table.descriptions().values())
