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
from tfx_distribute.trainer_module.strategies import mesh_variables


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
        mesh_variables.convert_arrays()

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

    def shard_value(self, value: Any, to: dtensor.Layout) -> tf.Tensor:
        """Splits a host's array or tensor into a DTensor with a part on each device."""
        return mesh_variables.shard(value, to)

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
                value = self.shard_value(value, dtensor.Layout(list(dimensions), self.mesh))
        kept = {option: arguments[option] for option in ("trainable", "constraint") if option in arguments}
        return dtensor.DVariable(value, name=short_name, **kept)
