"""Compares a training with the one that is expected of it, and says how they differ.

Importing this module does not import TensorFlow.
"""

from collections.abc import Callable
from dataclasses import dataclass

import kind_exceptions
import numpy as np

from tfx_distribute.trainer_module.job.strategy_info import strategy_named

SAME = "same"
# Strategy -> parameters of its distribution, on one machine without GPUs.
STRATEGIES = {
    "default": {},
    "one_device": {},
    "mirrored": {"accelerator_count": 2},
    "multi_worker_mirrored": {"num_workers": 2},
    "central_storage": {"accelerator_count": 2},
    "parameter_server": {},
    "model_parallel": {"mesh": "2x2", "layout_rules": "kernel = model, unsharded"},
}
SERVED = "served"  # the column of exported models
# Strategy -> roles of its processes, where there are several.
ROLES = {
    "multi_worker_mirrored": ("chief", "worker"),
    "parameter_server": ("chief", "worker", "ps"),
}
EPOCHS, BATCH = 3, 8
SAVED_EVERY = 5  # training steps; the last save is in the middle of the second epoch
# Largest differences that count as none. The replicas' sums have another order, which
# changes a few units in the last place after twelve steps.
WEIGHTS_WITHIN, LOGS_WITHIN = 2e-5, 2e-4


@dataclass(frozen=True)
class Outcome:
    """The result of one cell.

    Attributes:
      weights: The largest difference of a weight from that under `fit`, relative to the
        largest weight.
      logs: The largest relative difference of a logged value.
      trace: The first difference between the two traces of callbacks; empty if they are
        equal.
      refused: The reason why the loop refused to train the cell, or empty.
      not_compared: The reason why there is nothing to compare with, or empty.
      error: The error that was raised, or empty.
    """

    weights: float = 0.0
    logs: float = 0.0
    trace: str = ""
    refused: str = ""
    not_compared: str = ""
    error: str = ""


@dataclass(frozen=True)
class Training:
    """Results of a training.

    Attributes:
      weights: The weights of the model; None if the training was interrupted.
      calls: The traced calls of callbacks.
      logs: Epoch -> name -> logged value.
    """

    weights: list | None
    calls: list
    logs: dict


def has_fixed_batches(kind: str, strategy_name: str) -> bool:
    """Returns True if all batches of a cell have the same size, under `fit` too."""
    info = strategy_named(strategy_name)
    drops_remainder = kind_exceptions.OPTIONS.get(kind, {}).get("drop_remainder", False)
    return bool(info.fixed_batches) or drops_remainder


def reference_name(kind: str, drop_remainder: bool) -> str:
    """Returns the name of the file with the result of `fit` that a kind needs."""
    return f"fit-{kind_exceptions.REFERENCES.get(kind, kind)}{'-fixed' * drop_remainder}"


def differences(
    expected: Training, parts: list[tuple[Callable[[list], list], Training]], kind: str, strategy_info
) -> Outcome:
    """Compares the weights, logs and traced calls of a cell's training.

    Args:
      expected: The training to compare with.
      parts: The parts of the cell's training, each with a function that selects its
        calls from those of an uninterrupted one with batch hooks.
      kind: The kind of model.
      strategy_info: The row of the strategy table.
    """
    weights = parts[-1][1].weights
    if [w.shape for w in expected.weights] != [w.shape for w in weights]:
        return Outcome(error=f"the weights are {[w.shape for w in weights]}, not {[w.shape for w in expected.weights]}")
    if not all(np.isfinite(w).all() for w in (*expected.weights, *weights)):
        return Outcome(error="some weights are not finite")
    largest_weight = max(float(np.max(np.abs(w))) for w in expected.weights)
    weight_difference = max(float(np.max(np.abs(a - b))) for a, b in zip(expected.weights, weights, strict=True))
    ignored_logs = kind_exceptions.IGNORED_LOGS.get(kind, ())
    log_difference = max(compare_logs(expected.logs, part.logs, ignored_logs) for _, part in parts)
    extra_logs = kind_exceptions.EXTRA_LOGS.get(kind, frozenset())
    # Parameter servers call no hooks of them; accumulation has smaller ones.
    ignores_test_batches = "gradient_accumulation_steps" in kind_exceptions.OPTIONS.get(kind, ())
    expected_calls = expected.calls
    if strategy_info.parameter_servers or ignores_test_batches:
        expected_calls = without_test_batches(expected_calls)
    trace = ""
    for select, part in parts:
        calls = without_test_batches(part.calls) if ignores_test_batches else part.calls
        trace = trace or compare_calls(select(expected_calls), calls, extra_logs)
    return Outcome(weight_difference / largest_weight, log_difference, trace)


def compare_calls(expected_calls: list, calls: list, extra_logs=frozenset()) -> str:
    """Returns the first difference between two traces; empty if they are equal.

    Args:
      expected_calls: The calls under `fit`.
      calls: The calls to compare.
      extra_logs: Names of logs that only one of the two may have.
    """
    expected_calls, calls = (
        [(*call[:2], *(sorted(set(names) - extra_logs) for names in call[2:])) for call in both]
        for both in (expected_calls, calls)
    )
    if calls == expected_calls:
        return ""
    pairs = enumerate(zip(expected_calls, calls, strict=False))
    index = next((n for n, (a, b) in pairs if a != b), min(len(expected_calls), len(calls)))
    return f"{index}: {calls[index : index + 2]} instead of {expected_calls[index : index + 2]}"


def without_test_batches(calls: list) -> list:
    return [call for call in calls if not call[0].startswith("test batch")]


def without_batches(calls: list) -> list:
    return [call for call in calls if "batch" not in call[0]]


def verdict(kind: str, outcome: Outcome) -> str:
    """Returns the outcome of a cell in words, without numbers; `same` if as `fit`."""
    weights_within, logs_within = kind_exceptions.TOLERANCES.get(kind, (WEIGHTS_WITHIN, LOGS_WITHIN))
    if outcome.refused:
        return f"refused: {outcome.refused}"
    if outcome.not_compared:
        return f"not compared: {outcome.not_compared}"
    if outcome.error:
        return f"fails: {outcome.error.partition(':')[0]}"
    if outcome.trace:
        return "differs: the calls of callbacks"
    if outcome.weights > weights_within:
        return "differs: the weights"
    return "differs: the logged values" if outcome.logs > logs_within else SAME


def compare_logs(expected_logs, logs, ignored_names) -> float:
    """Returns the largest relative difference of a logged value in any epoch."""
    largest = 0.0
    for epoch, values in logs.items():
        for name, value in values.items():
            if name in expected_logs[epoch] and name not in ignored_names:
                expected = expected_logs[epoch][name]
                difference = abs(value - expected) / max(abs(expected), 1e-3)
                largest = max(largest, difference if np.isfinite(value) else 1e9)
    return largest


def calls_until_interruption(calls: list) -> list:
    """Returns the calls of a training without batch hooks that ends in epoch 1."""
    end = next(index for index, call in enumerate(calls) if call[:2] == ("epoch end", 1))
    return without_batches(calls[:end])


def calls_after_resuming(calls: list) -> list:
    """Returns the calls of a training that resumes from the last save.

    The epoch of the save begins again, but only its remaining batches follow.
    """
    second_epoch = calls.index(("epoch begin", 1))
    steps_per_epoch = sum(call[0] == "train batch begin" for call in calls[:second_epoch])
    first_new = calls.index(("train batch begin", SAVED_EVERY - steps_per_epoch), second_epoch)
    return [("train begin",), ("epoch begin", 1), *calls[first_new:]]
