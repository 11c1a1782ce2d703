"""Implements the strategy `model_parallel`, which splits variables over a DTensor mesh.

A mesh has two dimensions: examples are divided along `batch`, variables along `model`
as the layout rules say. Every variable that `build_model` makes becomes a DVariable.
Its parts go to their devices one by one, so no device ever holds a whole variable.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import layout_rules
from tfx_distribute.trainer_module.job.training_job import Distribution


class MeshStrategy:
    """A mesh, with the part of `tf.distribute.Strategy` that the training loop needs.

    Attributes:
      shape: Number of devices along `batch` and along `model`.
      num_replicas_in_sync: Number of devices along `batch`; each group of devices along
        `model` is one replica.
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
        # DTensor adds up wrongly where it combines several sums over devices into one,
        # for instance the norms of two gradients.
        os.environ["DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION"] = "0"
        _patch_variables()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Lays variables that are made within the block out over the mesh."""
        with tf.variable_creator_scope(functools.partial(self._create, self.rules)):
            yield

    @contextlib.contextmanager
    def undivided(self) -> Iterator[None]:
        """Keeps variables that are made within the block whole on every device."""
        with tf.variable_creator_scope(functools.partial(self._create, ())):
            yield

    def check_rules(self, model: tf.keras.Model) -> None:
        """Checks that every layout rule matches one of a model's variables."""
        layout_rules.check_rules(
            self.rules, [weight.name.partition(":")[0] for weight in model.weights if hasattr(weight, "name")]
        )

    def _create(self, rules: layout_rules.Rules, next_creator: Callable[..., Any], **arguments: Any) -> tf.Variable:
        del next_creator
        scope, short_name = tf.get_current_name_scope(), arguments.get("name") or "variable"
        name = f"{scope}/{short_name}" if scope else short_name
        with tf.init_scope(), tf.device("CPU:0"):
            initial = arguments["initial_value"]
            value = initial() if callable(initial) else initial
            value = tf.convert_to_tensor(value, arguments.get("dtype"))
            if not dtensor.is_dtensor(value):
                dimensions = layout_rules.dimensions_of(rules, self.shape, name, tuple(value.shape))
                value = shard(value, dtensor.Layout(list(dimensions), self.mesh))
        kept = {option: arguments[option] for option in ("trainable", "constraint") if option in arguments}
        return dtensor.DVariable(value, name=short_name, **kept)


def shard(value: Any, layout: dtensor.Layout) -> tf.Tensor:
    """Splits a host's array or tensor into a DTensor with a part on each device."""
    array = np.asarray(value)
    parts = []
    for location in layout.mesh.local_device_locations():
        part = array
        for axis, dimension in enumerate(layout.sharding_specs):
            if dimension != dtensor.UNSHARDED:
                part = np.split(part, layout.mesh.dim_size(dimension), axis)[location[dimension]]
        parts.append(tf.constant(part))
    return dtensor.pack(parts, layout)


def _join(tensor: tf.Tensor) -> np.ndarray:
    """Returns the whole value of a DTensor, which only the host then holds."""
    layout = dtensor.fetch_layout(tensor)
    whole = np.empty(tensor.shape, tensor.dtype.as_numpy_dtype)
    for part, location in zip(dtensor.unpack(tensor), layout.mesh.local_device_locations(), strict=True):
        first = [0 if each == dtensor.UNSHARDED else location[each] for each in layout.sharding_specs]
        place = tuple(slice(index * size, (index + 1) * size) for index, size in zip(first, part.shape, strict=True))
        whole[place] = part.numpy()
    return whole


@functools.cache
def _patch_variables() -> None:
    """Makes variables of a mesh convert to arrays, and accept arrays and tensors.

    Keras's `get_weights` and `set_weights`, and callbacks that save or restore weights,
    need this, and DTensor has it only for variables that are not divided. This changes
    DTensor's class, because Keras creates the optimizer's variables of it.
    """
    variable_class = dtensor.DVariable
    assign = variable_class.assign

    @functools.wraps(assign)
    def assign_whole(variable: dtensor.DVariable, value: Any, *arguments: Any, **options: Any) -> Any:
        if tf.executing_eagerly() and not dtensor.is_dtensor(value):
            value = shard(tf.convert_to_tensor(value, variable.dtype), variable.layout)
        return assign(variable, value, *arguments, **options)

    variable_class.numpy = lambda variable: _join(variable.read_value())
    variable_class.assign = assign_whole
