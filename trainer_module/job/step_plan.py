"""Plans the training steps of a run for a number of replicas."""

import math
from dataclasses import dataclass

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingOptions


@dataclass(frozen=True)
class Plan:
    """The training steps of a run.

    Attributes:
      steps_per_pass: Training steps that see each example once; about once if batches
        are fixed.
      fixed_batches: True if all batches have the same size, so that a pass over the
        examples may end in the middle of one.
      steps_per_epoch: Training steps of one Keras epoch; the last one may have fewer.
    """

    num_replicas: int
    global_batch_size: int
    steps_per_pass: int
    fixed_batches: bool
    steps_per_epoch: int
    train_steps: int

    @property
    def epochs(self) -> int:
        """Number of Keras epochs."""
        return math.ceil(self.train_steps / self.steps_per_epoch)

    def steps_of_epoch(self, epoch: int) -> int:
        """Returns the number of training steps of an epoch. The first epoch is 0."""
        return min(self.steps_per_epoch, self.train_steps - epoch * self.steps_per_epoch)


def make_plan(options: TrainingOptions, num_examples: int, num_replicas: int, fixed_batches: bool = False) -> Plan:
    """Plans the training steps of a run.

    With `epochs`, an epoch is one pass over the examples, in as few steps as possible.
    Their batches may be slightly smaller than the global batch, so that no step is left
    with only a few examples. With `train_steps`, all steps are one Keras epoch, as in
    TFX's own examples, unless `steps_per_epoch` divides them. With `fixed_batches`,
    which some strategies need, all batches have the same size: a pass is rounded to
    whole steps, and the examples left over go into the next pass.
    """
    batches = num_replicas * options.gradient_accumulation_steps
    batch = options.per_replica_batch_size * batches
    if num_examples < batch:
        accumulated = f" and {options.gradient_accumulation_steps} batches each" if batches > num_replicas else ""
        raise ConfigurationError(
            f"per_replica_batch_size: {options.per_replica_batch_size} on {num_replicas} replicas{accumulated} is a global "
            f"batch of {batch}, but the train split has {num_examples} examples; "
            + (f"write at most {num_examples // batches}" if num_examples >= batches else "take fewer replicas")
        )
    steps = math.ceil(num_examples / batch)
    # With batches of one example, some replica would have none in the last step.
    fixed = fixed_batches or options.drop_remainder or steps * batches > num_examples
    if fixed:
        steps = round(num_examples / batch)
    if options.epochs:
        return Plan(num_replicas, batch, steps, fixed, steps, steps * options.epochs)
    steps_per_epoch = min(options.steps_per_epoch or options.train_steps, options.train_steps)
    return Plan(num_replicas, batch, steps, fixed, steps_per_epoch, options.train_steps)
