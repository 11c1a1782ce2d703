"""Tests how errors of TensorFlow are put into one line."""

import pytest

from tfx_distribute.trainer_module.errors import first_line

STACK = """Graph execution error:

Detected at node CollectiveReduceV2 defined at (most recent call last):
  File "<string>", line 1, in <module>

  File "/trainer_module/loop/step_runner.py", line 218, in _mean
    meet()

"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("failed to connect to all addresses\nAdditional GRPC error information", "failed to connect to all addresses"),
        (
            f"{STACK}Collective ops is aborted by: Socket closed\nThe error could be",
            "Collective ops is aborted by: Socket closed",
        ),
        (
            "Graph execution error:\n\n2 root error(s) found.\n  (0) UNAVAILABLE: gone\n  (1) CANCELLED",
            "(0) UNAVAILABLE: gone",
        ),
        (STACK, "Graph execution error:"),
        ("", "ValueError"),
    ],
)
def test_the_first_line_that_says_what_happened(message, line):
    assert first_line(ValueError(message)) == line
