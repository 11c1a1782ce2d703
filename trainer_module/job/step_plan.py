"""How many steps a schedule is, once the replicas are known. Plain arithmetic, without TensorFlow."""

import math
from dataclasses import dataclass

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingOptions


@dataclass(frozen=True)
class Plan:
    """The numbers of a run.

    Attributes:
      num_replicas: Replicas that train in step.
      global_batch_size: Examples per training step over all replicas.
      steps_per_pass: Training steps in which each example is seen once; about once where batches are fixed.
      fixed_batches: Whether all batches have the same size, and a pass over the examples may end in the middle of one.
      steps_per_epoch: Training steps of one Keras epoch.
      epochs: Keras epochs.
    """

    num_replicas: int
    global_batch_size: int
    steps_per_pass: int
    fixed_batches: bool
    steps_per_epoch: int
    epochs: int

    @property
    def train_steps(self) -> int:
        """Training steps in all."""
        return self.steps_per_epoch * self.epochs


def make_plan(schedule: TrainingOptions, num_examples: int, num_replicas: int, fixed_batches: bool = False) -> Plan:
    """Works out how many steps a schedule is.

    With `epochs`, an epoch is one pass over the examples: as few steps as have room for all, their batches smaller than
    the global batch by a little, so that none is left with a handful. With `train_steps`, all steps are one Keras epoch,
    as in TFX's own examples.

    Args:
      schedule: How long and how training goes.
      num_examples: Examples that are trained on.
      num_replicas: Replicas that train in step.
      fixed_batches: Whether the strategy needs batches that all have the same size. A pass is then the whole number of steps
        nearest to the examples, and what is left goes into the next pass.

    Raises:
      ConfigurationError: There are fewer examples than one global batch.
    """
    batches = num_replicas * schedule.gradient_accumulation_steps
    batch = schedule.per_replica_batch_size * batches
    if num_examples < batch:
        accumulated = f" and {schedule.gradient_accumulation_steps} batches each" if batches > num_replicas else ""
        raise ConfigurationError(
            f"per_replica_batch_size: {schedule.per_replica_batch_size} on {num_replicas} replicas{accumulated} is a global "
            f"batch of {batch}, but the train split has {num_examples} examples; "
            + (f"write at most {num_examples // batches}" if num_examples >= batches else "take fewer replicas")
        )
    steps, fixed = pass_of(schedule, num_examples, num_replicas, fixed_batches)
    if schedule.epochs:
        return Plan(num_replicas, batch, steps, fixed, steps, schedule.epochs)
    return Plan(num_replicas, batch, steps, fixed, schedule.train_steps, 1)


def pass_of(schedule: TrainingOptions, num_examples: int, num_replicas: int, fixed_batches: bool) -> tuple[int, bool]:
    """In how many steps each example is seen once, and whether all batches have the same size.

    Args:
      schedule: How long and how training goes.
      num_examples: Examples that are trained on, one global batch or more.
      num_replicas: Replicas that train in step.
      fixed_batches: Whether the strategy needs batches that all have the same size.
    """
    batches = num_replicas * schedule.gradient_accumulation_steps
    batch = schedule.per_replica_batch_size * batches
    steps = math.ceil(num_examples / batch)
    # With batches of one example, some replica would have none in the last step.
    if fixed_batches or schedule.drop_remainder or steps * batches > num_examples:
        return round(num_examples / batch), True
    return steps, False
