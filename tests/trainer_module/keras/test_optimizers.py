import tensorflow as tf

from tfx_distribute.trainer_module.keras import optimizers
from tfx_distribute.trainer_module.loop import gradients


class Holder:
    def __init__(self, optimizer):
        self.optimizer = optimizer


class Multi(tf.keras.optimizers.SGD):
    """Delegates to others, as TensorFlow Addons' MultiOptimizer does."""

    def __init__(self, *parts):
        super().__init__(0.1)
        self.optimizer_specs = [{"optimizer": parts[0]}, Holder(parts[1])]

    def apply_gradients(self, grads_and_vars, **options):
        first, second = grads_and_vars
        self.optimizer_specs[0]["optimizer"].apply_gradients([first])
        self.optimizer_specs[1].optimizer.apply_gradients([second])


def test_optimizers_that_another_one_keeps_in_containers_and_objects():
    first, second, other = (tf.keras.optimizers.SGD(0.1) for _ in range(3))
    multi = Multi(first, second)
    assert {id(each) for each in optimizers.with_inner(multi)} == {id(multi), id(first), id(second)}
    found = optimizers.find(multi, [Holder([{"parts": (other, first)}])])
    assert [id(each) for each in found] == [id(multi), id(other)]


def test_none_of_them_sums_over_replicas_again():
    """Replicas' gradients are summed before."""
    parts = tf.keras.optimizers.SGD(0.1), tf.keras.optimizers.SGD(0.1)
    gradients.prepare(Multi(*parts), [tf.Variable(1.0), tf.Variable(1.0)])
    pairs = [("gradient", "variable")]
    assert all(each.aggregate_gradients(pairs) is pairs for each in parts)
