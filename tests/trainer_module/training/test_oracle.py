"""Keras's `fit` is the oracle: what trains under it trains the same under every strategy, interrupted or not."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]

# Sums in another order: differences of a few units in the last place, after twelve steps.
WEIGHTS_WITHIN, LOGS_WITHIN = 2e-5, 2e-4
HOW = ("many", "resumed")


@functools.cache
def kinds() -> list[str]:
    """Names of the kinds of model, read without importing TensorFlow."""
    text = (TESTS / "fakes" / "kinds.py").read_text()
    names = [line[4:].partition("(")[0] for line in text.splitlines() if line.startswith("def ")]
    return [name for name in names if not name.startswith("_")]


def outcomes(folder: Path, keras_version: int, strategies: tuple[str, ...], names: list[str], seconds: float) -> dict:
    """Trains cells in processes of their own; returns their outcomes by name."""
    out = folder / f"outcomes-{keras_version}.json"
    words = [sys.executable, str(TESTS / "fakes" / "oracle.py"), "--keras", str(keras_version), "--out", str(out)]
    words += ["--strategies", ",".join(strategies), "--kinds", ",".join(names)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


def differences(seen: dict) -> dict:
    """Returns the cells that did not train as under `fit`."""
    return {
        cell: outcome
        for cell, outcome in seen.items()
        if outcome["error"] or outcome["trace"] or outcome["weights"] > WEIGHTS_WITHIN or outcome["logs"] > LOGS_WITHIN
    }


@pytest.mark.parametrize(("keras_version", "kind"), [(2, "embedding_sparse"), (3, "loss_scale_overflow")])
def test_one_kind_of_model_trains_as_under_fit(tmp_path, keras_version, kind):
    """Weights, logs and calls of callbacks; also where training was interrupted in the middle of an epoch."""
    seen = outcomes(tmp_path, keras_version, ("mirrored",), [kind], seconds=280)
    assert set(seen) == {f"{kind}/mirrored/{how}" for how in HOW}
    assert not differences(seen)


@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("keras_version", "strategy"),
    # Keras 2 under mirrored and Keras 3 on two workers are left to `python tests/fakes/oracle.py`: minutes each.
    [(2, "default"), (2, "multi_worker_mirrored"), (3, "default"), (3, "mirrored")],
)
def test_every_kind_of_model_trains_as_under_fit(tmp_path, keras_version, strategy):
    seen = outcomes(tmp_path, keras_version, (strategy,), kinds(), seconds=880)
    assert set(seen) == {f"{kind}/{strategy}/{how}" for kind in kinds() for how in HOW}
    assert not differences(seen)
