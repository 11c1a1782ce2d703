"""Measures where training steps spend their time, inside TensorFlow calls of many.

On a processor, a step is computed before the next one begins, so the time of day at a
few points of its graph is exact, and costs some microseconds a step. An accelerator
computes while its host goes on: there, the host waits for the device before each group
of steps, and the batch of the group's first step stands for those of the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

# On accelerators, one of so many steps is measured.
SAMPLE = 16


@dataclass(frozen=True)
class CallTime:
    """The time of one TensorFlow call, in seconds.

    Attributes:
      begin: Unix time at which its first step began, after it was traced, by the clock
        of this machine; 0 if unknown.
      input: Time for which steps waited for their batches.
      wait_for_peers: Time from the moment at which this process had computed its
        gradients until they were summed over all; None if it is not measured.
    """

    begin: float = 0.0
    input: float = 0.0
    wait_for_peers: float | None = None


def weight_of_measured(num_steps: Any) -> Any:
    """Returns how many steps a measured one stands for, the first of every `SAMPLE`."""
    return num_steps / -(-num_steps // SAMPLE)


def computes_behind_host() -> bool:
    """Returns True if some device computes while the host goes on."""
    return any(device.device_type != "CPU" for device in tf.config.list_logical_devices())


def moment(*values: Any) -> tf.Tensor:
    """Returns the time of day once nested tensors are computed, a float64 scalar."""
    with tf.control_dependencies(tf.nest.flatten(values, expand_composites=True)):
        return tf.timestamp()


def moment_on_all_replicas(values: Any) -> tf.Tensor:
    """Returns the time of day once all replicas of this process have computed values.

    One operation for all of them, since TensorFlow runs such operations in the order of
    the code: with one for each replica, a replica would wait for the one before.
    """
    return tf.distribute.get_replica_context().merge_call(_moment_of_replicas, args=(values,))


def _moment_of_replicas(strategy: tf.distribute.Strategy, values: Any) -> tf.Tensor:
    return moment([strategy.experimental_local_results(value) for value in values])


def moment_after_device(values: Any) -> tf.Tensor:
    """Returns the time of day once devices have computed a value of their last step."""
    with tf.device("CPU:0"):
        # The copies come after everything that the devices were given before.
        return moment([tf.identity(value) for value in values])


def on_host(compute: Callable[..., tf.Tensor], *values: Any) -> tf.Tensor:
    """Computes times on the host, which then waits for no device to have them."""
    with tf.device("CPU:0"):
        return compute(*values)


def to_microseconds(seconds: tf.Tensor) -> tf.Tensor:
    """Returns seconds as int32, which has room for half an hour."""
    return on_host(lambda: tf.cast(seconds * 1e6, tf.int32))


def estimate(microseconds: tf.Tensor, num_steps: tf.Tensor) -> tf.Tensor:
    """Returns the seconds of all steps from those of the measured ones."""
    return on_host(lambda: tf.cast(microseconds, tf.float64) * 1e-6 * weight_of_measured(num_steps))
