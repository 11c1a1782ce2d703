"""Measures what it costs to measure where training time goes.

    python benchmarks/time_measurement.py [--rounds N]

Trains a small model with the measurement and without it, in turns, in the same process,
and compares the processor time of the fastest calls of each. The steps are short, so
that the cost stands out; it is the same number of operations in a longer step. The aim
is less than 1 percent of a step of 5 ms. `counters` is the time for reading those of
the process and its machine, every two seconds at most.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

import tensorflow as tf
from ones import Ones, model_with

from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.loop import process_times
from tfx_distribute.trainer_module.loop.step_runner import StepRunner

STEP_SECONDS = 0.005
STEPS = 100  # of a call


class PlainStepRunner(StepRunner):
    """Runs steps without measuring their time."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.step.measures_peers = False

    def _next(self, iterator):
        return next(iterator), tf.zeros([], tf.float64)


def make(kind: type[StepRunner], strategy: tf.distribute.Strategy) -> StepRunner:
    with strategy.scope():
        adapter = factory.make(model_with(tf.keras.optimizers.SGD(0.001)), "f")
        step_runner = kind(adapter, strategy, Ones(), TrainingOptions(2))
        step_runner.open(0)
        step_runner.train(STEPS)
    return step_runner


def seconds(step_runner: StepRunner) -> float:
    began = time.process_time()
    step_runner.train(STEPS)
    return time.process_time() - began


def measure(strategy: tf.distribute.Strategy, rounds: int) -> tuple[float, float]:
    """Returns the processor time of a step without and with the measurement."""
    plain, timed = make(PlainStepRunner, strategy), make(StepRunner, strategy)
    with strategy.scope():
        times = [(seconds(plain), seconds(timed)) for _ in range(rounds)]
    return min(pair[0] for pair in times) / STEPS, min(pair[1] for pair in times) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    print(f"{os.cpu_count()} cores\n")
    print("strategy      without, µs a step      with    cost, µs    of a step of 5 ms")
    strategies = {"default": tf.distribute.get_strategy(), "mirrored": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])}
    for name, strategy in strategies.items():
        plain, timed = measure(strategy, rounds)
        cost = timed - plain
        print(f"{name:<12}{plain * 1e6:>20.1f}{timed * 1e6:>10.1f}{cost * 1e6:>12.1f}{cost / STEP_SECONDS:>21.2%}")
    began = time.process_time()
    for _ in range(100):
        process_times.read_counters()
    counters = (time.process_time() - began) / 100
    print(f"\ncounters: {counters * 1e3:.2f} ms, {counters / process_times.COUNTER_SECONDS:.2%} of the time")


if __name__ == "__main__":
    main()
