"""Tests that time in which a process was suspended does not count."""

import os
import signal
import subprocess
import sys
import time

SUSPENDED = """
import time
from tfx_distribute.trainer_module.liveness.clock import RunningClock
clock, began = RunningClock(longest_gap=0.5), time.monotonic()
print("ready", flush=True)
while time.monotonic() - began < 4.0:
    time.sleep(0.05)
    clock.seconds()
print(time.monotonic() - began, clock.seconds())
"""


def test_a_suspended_process_counts_only_the_time_in_which_it_ran():
    process = subprocess.Popen([sys.executable, "-c", SUSPENDED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(process.pid, signal.SIGCONT)
    out, _ = process.communicate(timeout=30)
    passed, counted = map(float, out.split())
    assert passed >= 4.0
    assert 0.5 <= counted <= passed - 2.0
