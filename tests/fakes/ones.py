"""Provides a minimal training: one weight, and examples that are all ones."""

import tensorflow as tf

from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.training_job import InputOptions, Split, TrainingData, TrainingOptions


class Ones(InputPipeline):
    """Yields batches of ones without end."""

    def __init__(self):
        options = TrainingOptions(2, epochs=1)
        data = TrainingData(Split((), 2), None, "y", None, None)
        super().__init__(data, None, options, InputOptions(), make_plan(options, 2, 1), readers=1, batches=1)

    def train(self, context, first_step=0):
        return tf.data.Dataset.from_tensors(((tf.ones([2, 1]), tf.ones([2, 1])), 1.0)).repeat()

    def zeros(self, shapes=None):
        return tf.zeros([2, 1]), tf.zeros([2, 1])


def model_with(optimizer) -> tf.keras.Model:
    inputs = tf.keras.Input((1,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
    model.compile(optimizer, "mse")
    return model
