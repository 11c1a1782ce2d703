"""Checks that models train the same under every strategy as with Keras's `fit`.

`fit` is the oracle, both for uninterrupted training and for training that resumes.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]

# Sums have another order, which changes a few units in the last place after twelve
# steps.
WEIGHTS_WITHIN, LOGS_WITHIN = 2e-5, 2e-4
HOW = ("many", "resumed")


@functools.cache
def kinds() -> list[str]:
    """Returns the names of the kinds of model, without importing TensorFlow."""
    text = (TESTS / "fakes" / "kinds.py").read_text()
    names = [line[4:].partition("(")[0] for line in text.splitlines() if line.startswith("def ")]
    return [name for name in names if not name.startswith("_")]


def outcomes(folder: Path, keras_version: int, strategies: tuple[str, ...], names: list[str], seconds: float) -> dict:
    """Trains cells in separate processes; returns their outcomes by name."""
    out = folder / f"outcomes-{keras_version}.json"
    command = [sys.executable, str(TESTS / "fakes" / "oracle.py"), "--keras", str(keras_version), "--out", str(out)]
    command += ["--strategies", ",".join(strategies), "--kinds", ",".join(names)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return json.loads(out.read_text())


def differences(cells: dict) -> dict:
    """Returns the cells that did not train as under `fit`."""
    return {
        cell: outcome
        for cell, outcome in cells.items()
        if outcome["error"] or outcome["trace"] or outcome["weights"] > WEIGHTS_WITHIN or outcome["logs"] > LOGS_WITHIN
    }


@pytest.mark.parametrize(("keras_version", "kind"), [(2, "embedding_sparse"), (3, "loss_scale_overflow")])
def test_one_kind_of_model_trains_as_under_fit(tmp_path, keras_version, kind):
    """Compares weights, logs and calls of callbacks, also after an interruption."""
    cells = outcomes(tmp_path, keras_version, ("mirrored",), [kind], seconds=280)
    assert set(cells) == {f"{kind}/mirrored/{how}" for how in HOW}
    assert not differences(cells)


@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("keras_version", "strategy"),
    # Keras 2 with mirrored and Keras 3 on two workers take minutes each, so only a
    # direct call of `python tests/fakes/oracle.py` runs them.
    [(2, "default"), (2, "multi_worker_mirrored"), (3, "default"), (3, "mirrored")],
)
def test_every_kind_of_model_trains_as_under_fit(tmp_path, keras_version, strategy):
    cells = outcomes(tmp_path, keras_version, (strategy,), kinds(), seconds=880)
    assert set(cells) == {f"{kind}/{strategy}/{how}" for kind in kinds() for how in HOW}
    assert not differences(cells)
