"""Tests how the coordinator of parameter servers divides its work."""

import pytest

from tfx_distribute.trainer_module.training import coordinator_steps


@pytest.mark.parametrize(
    ("num_batches", "num_workers", "calls"),
    [
        (1, 1, 1),
        (12, 2, 2),
        (63, 1, 1),
        (64, 1, 2),
        (127, 1, 2),
        (128, 1, 4),
        (127, 2, 2),
        (128, 2, 4),
        (256, 2, 8),
        (10**6, 3, 12),
    ],
)
def test_an_evaluation_has_few_calls_if_it_is_short(num_batches, num_workers, calls):
    assert coordinator_steps.evaluation_calls(num_batches, num_workers) == calls
