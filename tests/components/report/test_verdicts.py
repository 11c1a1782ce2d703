"""Tests the wording of thresholds on change, and of verdicts."""

import pytest

from tfx_distribute.components.report import verdicts


@pytest.mark.parametrize(
    ("absolute", "relative", "higher_is_better", "text"),
    [
        (-0.2, None, True, "change of at least -0.2"),
        (None, 0.07, False, "change of at most +7 %"),
        (0.0, -0.1, True, "change of at least +0 and -10 %"),
    ],
)
def test_thresholds_on_change(absolute, relative, higher_is_better, text):
    assert verdicts.describe_change(absolute, relative, higher_is_better) == text


@pytest.mark.parametrize(
    ("failed_on", "unmet_change", "text"),
    [
        ((), None, "met"),
        (("",), None, "not met"),
        (("",), -0.23, "not met: -0.23 from the blessed model's 0.95"),
        (("", "b=1"), -0.23, "not met: -0.23 from the blessed model's 0.95, also on 1 slice (b=1)"),
        (("d=1", "c=1", "b=1", "a=1"), None, "not met on 4 slices (a=1, b=1, c=1, ...)"),
    ],
)
def test_verdicts(failed_on, unmet_change, text):
    assert verdicts.describe_verdict(failed_on, 0.72, unmet_change) == text
