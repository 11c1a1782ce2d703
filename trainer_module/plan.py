"""How many steps a schedule is, once the replicas are known."""

from dataclasses import dataclass

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import Schedule


@dataclass(frozen=True)
class Plan:
    """The numbers of a run.

    Attributes:
      num_replicas: Replicas that train in step.
      global_batch_size: Examples per training step over all replicas.
      steps_per_epoch: Training steps of one Keras epoch.
      epochs: Keras epochs.
    """

    num_replicas: int
    global_batch_size: int
    steps_per_epoch: int
    epochs: int

    @property
    def train_steps(self) -> int:
        """Training steps in all."""
        return self.steps_per_epoch * self.epochs


def make_plan(schedule: Schedule, num_examples: int, num_replicas: int) -> Plan:
    """Works out how many steps a schedule is.

    With `epochs`, an epoch is the whole number of steps nearest to the examples. With `train_steps`, all steps are one
    Keras epoch, as in TFX's own examples.

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
    if schedule.epochs:
        return Plan(num_replicas, batch, round(num_examples / batch), schedule.epochs)
    return Plan(num_replicas, batch, schedule.train_steps, 1)
