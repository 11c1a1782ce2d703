import subprocess
import sys

# In a new process: a mesh needs devices that TensorFlow makes when it starts.
ON_A_MESH = """
import os, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.strategies import factory

rules = "table = batch, model; kernel = unsharded, model"
strategy = factory.create(Distribution("model_parallel", mesh="2x2", layout_rules=rules, accelerator_type="cpu"))
values = {"table": np.arange(24.0).reshape(4, 6), "dense/kernel": np.arange(4.0).reshape(1, 4), "bias": np.arange(3.0)}
for name, value in values.items():
    with strategy.scope():
        variable = tf.Variable(np.float32(value), name=name)
    layout = variable.layout
    np.testing.assert_array_equal(variable.numpy(), value)
    for other in (value + 1.0, tf.constant(value + 2.0, tf.float32)):
        variable.assign(other)
        np.testing.assert_array_equal(variable.numpy(), other)
    assert dtensor.fetch_layout(variable.read_value()) == layout

with strategy.scope():
    inputs = tf.keras.Input((2,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(4)(inputs))
    weights = model.get_weights()
    model.save_weights(f"{sys.argv[1]}/saved.weights.h5")
    model.set_weights([weight + 1.0 for weight in weights])
    np.testing.assert_array_equal(model.get_weights()[0], weights[0] + 1.0)
    model.load_weights(f"{sys.argv[1]}/saved.weights.h5")
    np.testing.assert_array_equal(model.get_weights()[0], weights[0])
print(model.layers[1].kernel.layout.sharding_specs)
"""


def test_divided_variables_are_read_and_assigned_as_whole_arrays(tmp_path):
    done = subprocess.run([sys.executable, "-c", ON_A_MESH, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == "['unsharded', 'model']\n", done.stderr
