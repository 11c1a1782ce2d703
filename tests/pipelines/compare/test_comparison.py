import pytest
from compared import outcome, unmeasured

from tfx_distribute.pipelines.compare.comparison import efficiencies


def test_trainings_that_differ_in_their_size_alone_are_compared():
    outcomes = [
        outcome(1500, 4, strategy="mirrored", num_workers=4),
        outcome(800, 2, strategy="mirrored", num_workers=2),
        outcome(900, 1, strategy="one_device", num_workers=1),
        outcome(700, 0, strategy="tpu", num_workers=1),
        unmeasured("failed", "no memory", strategy="mirrored", num_workers=1),
    ]
    assert efficiencies(outcomes) == [pytest.approx(1500 / 800 / 2), 1.0, 1.0, None, None]
