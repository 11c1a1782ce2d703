"""Tests that errors of a full disk, or of too many open files, are reported as such."""

import contextlib
import resource
from pathlib import Path

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import (
    ConfigurationError,
    TrainingError,
    as_shortage_error,
    describe_shortage,
    explaining_shortage,
    first_line,
)


@contextlib.contextmanager
def no_more_files():
    """Lets this process open no more files within the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        with contextlib.suppress(OSError):
            while True:
                stack.enter_context(open("/dev/null", "rb"))
        yield


def test_disk_that_is_full():
    with (
        pytest.raises(TrainingError, match=r"no space is left on the disk: .*No space left on device"),
        explaining_shortage(),
    ):
        Path("/dev/full").write_text("text")
    with (
        pytest.raises(TrainingError, match=r"no space is left on the disk: .*No space left on device"),
        explaining_shortage(),
    ):
        tf.io.write_file("/dev/full", "x" * 100_000)


def test_shortage_below_a_heading_of_tensorflow():
    error = tf.errors.ResourceExhaustedError(None, None, "2 root error(s) found.\n  (0) No space left on device")
    assert describe_shortage(error) == "no space is left on the disk: (0) No space left on device; free some"


def test_too_many_open_files(tmp_path):
    tf.constant(0)  # opens files of its own
    for read in ((tmp_path / "file").touch, lambda: tf.io.read_file(__file__)):
        message = r"too many open files: .*; raise the limit, .*`ulimit -n"
        with pytest.raises(TrainingError, match=message), no_more_files(), explaining_shortage():
            read()


@pytest.mark.parametrize(
    "error", [tf.errors.ResourceExhaustedError(None, None, "no memory"), ValueError(), OSError(2, "none")]
)
def test_other_errors_stay(error):
    assert as_shortage_error(error) is None
    with pytest.raises(type(error)), explaining_shortage():
        raise error


def test_a_message_for_people_stays():
    assert as_shortage_error(ConfigurationError("data: No space left on device")) is None


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
