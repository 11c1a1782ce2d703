"""The strategy `model_parallel`: variables laid out over a mesh of devices with DTensor.

A mesh has two dimensions: examples are divided along `batch`, variables along `model` as the layout rules say. Every
variable that `build_model` makes becomes a DVariable whose parts go to their devices one by one: no device ever holds a
whole one.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import layout_rules
from tfx_distribute.trainer_module.job.training_job import Distribution


class MeshStrategy:
    """A mesh, with what the loop needs of a `tf.distribute.Strategy`.

    Args:
      distribution: What the pipeline's parameters ask for.
      devices: Names of the devices of this process.

    Attributes:
      mesh: The mesh.
      num_replicas_in_sync: Devices along the batch; each group of devices along the model is one replica.
    """

    def __init__(self, distribution: Distribution, devices: Sequence[str]):
        self.shape = layout_rules.parse_mesh(distribution.mesh) if distribution.mesh else (len(devices), 1)
        if np.prod(self.shape) != len(devices):
            raise ConfigurationError(
                f"mesh: {distribution.mesh} is {np.prod(self.shape)} devices, but this process has {len(devices)}; "
                f"write a mesh of {len(devices)}, such as mesh=1x{len(devices)}"
            )
        self.rules = layout_rules.parse_rules(distribution.layout_rules)
        self.mesh = dtensor.create_mesh(
            list(zip((layout_rules.BATCH, layout_rules.MODEL), self.shape, strict=True)), devices=devices
        )
        self.num_replicas_in_sync = self.shape[0]
        # Dropout with a generator: DTensor knows no random operation that keeps its state elsewhere.
        tf.keras.backend.experimental.enable_tf_random_generator()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Variables made in this scope are laid out over the mesh."""
        with tf.variable_creator_scope(self._create):
            yield

    def check_rules(self, model: tf.keras.Model) -> None:
        """Refuses a layout rule that matches none of a model's variables."""
        layout_rules.check_rules(self.rules, [variable.name.partition(":")[0] for variable in model.weights])

    def shard_value(self, value: Any, to: dtensor.Layout) -> tf.Tensor:
        """Gives each device its part of a value that this process holds whole."""
        whole = np.asarray(value)
        sharding = to.sharding_specs
        parts = []
        for place in self.mesh.local_device_locations():
            part = whole
            for axis, dimension in enumerate(sharding):
                if dimension != dtensor.UNSHARDED:
                    part = np.split(part, self.mesh.dim_size(dimension), axis)[place[dimension]]
            parts.append(tf.constant(part))
        return dtensor.pack(parts, to)

    def _create(self, next_creator: Callable[..., Any], **arguments: Any) -> tf.Variable:
        del next_creator
        scope, own_name = tf.get_current_name_scope(), arguments.get("name") or "variable"
        name = f"{scope}/{own_name}" if scope else own_name
        with tf.init_scope(), tf.device("CPU:0"):
            initial = arguments["initial_value"]
            value = initial() if callable(initial) else initial
            value = tf.convert_to_tensor(value, arguments.get("dtype"))
            if not dtensor.is_dtensor(value):
                dimensions = layout_rules.dimensions_of(self.rules, self.shape, name, tuple(value.shape))
                value = self.shard_value(value, dtensor.Layout(list(dimensions), self.mesh))
        return dtensor.DVariable(value, name=own_name, trainable=arguments.get("trainable", True))
