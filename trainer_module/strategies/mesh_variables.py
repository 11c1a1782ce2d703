"""Converts the variables of a DTensor mesh from and to whole arrays.

Keras's `get_weights`, `set_weights`, and callbacks that save or restore weights read
and assign variables as arrays, which DTensor does not do for divided ones.
"""

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor


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


def join(tensor: tf.Tensor) -> np.ndarray:
    """Returns the whole value of a DTensor, which only the host then holds."""
    layout = dtensor.fetch_layout(tensor)
    whole = np.empty(tensor.shape, tensor.dtype.as_numpy_dtype)
    for part, location in zip(dtensor.unpack(tensor), layout.mesh.local_device_locations(), strict=True):
        first = [0 if each == dtensor.UNSHARDED else location[each] for each in layout.sharding_specs]
        place = tuple(slice(index * size, (index + 1) * size) for index, size in zip(first, part.shape, strict=True))
        whole[place] = part.numpy()
    return whole


@functools.cache
def convert_arrays() -> None:
    """Makes variables of a mesh convert to arrays, and accept arrays and tensors.

    This changes DTensor's class, because Keras creates the optimizer's variables of it.
    """
    variable_class = dtensor.DVariable
    assign = variable_class.assign

    def read(variable: dtensor.DVariable) -> np.ndarray:
        return join(variable.read_value())

    @functools.wraps(assign)
    def assign_whole(variable: dtensor.DVariable, value: Any, *arguments: Any, **options: Any) -> Any:
        if tf.executing_eagerly() and not dtensor.is_dtensor(value):
            value = shard(tf.convert_to_tensor(value, variable.dtype), variable.layout)
        return assign(variable, value, *arguments, **options)

    variable_class.numpy = read
    variable_class.assign = assign_whole
