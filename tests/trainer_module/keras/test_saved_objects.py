import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras import saved_objects
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.user_code.task import Task


class OfParts(tf.keras.Model):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def call(self, features):
        return features


class OfPartsTask(Task):
    train_step = eval_step = lambda self, features, label: tf.reduce_mean(features)

    def __init__(self, parts, teacher_parts=()):
        self.model, self.teacher = OfParts(parts), OfParts(teacher_parts)
        self.optimizer = tf.keras.optimizers.SGD()


def of_parts(parts):
    model = OfParts(parts)
    model.compile("sgd", "mse")
    return model


def check(returned):
    adapter = factory.make(returned, "build_model")
    adapter.prepare((tf.zeros([1, 2]), tf.zeros([1, 2])))
    saved_objects.find(adapter.state())


def test_layers_under_keys_that_are_not_texts_are_refused():
    check(of_parts({"0": tf.keras.layers.Dense(1)}))
    numbered = {0: tf.keras.layers.Dense(1)}
    for returned, path in (
        (of_parts(numbered), "model.parts"),
        (OfPartsTask(numbered), "model.parts"),
        (OfPartsTask([], numbered), "task.teacher.parts"),
    ):
        with pytest.raises(
            ConfigurationError, match=f"^module: TensorFlow cannot save {path}: .* contains a non-string key"
        ):
            check(returned)


def test_a_list_of_layers_that_has_lost_one_is_refused():
    model = of_parts([tf.keras.layers.Dense(1), tf.keras.layers.Dense(1)])
    del model.parts[1]
    with pytest.raises(ConfigurationError, match="^module: TensorFlow cannot save model.parts: .*list element was replaced"):
        check(model)
