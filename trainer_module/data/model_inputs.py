"""Gives features the shapes of the model's inputs, whichever values a batch has.

A feature that examples may lack, or have several values of, is parsed as a
`tf.SparseTensor` as wide as its longest row. What a model computes for an example must
not depend on that width, which the other examples of the batch decide on.
"""

import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import DataError

_TOO_LONG = re.compile(r"feature .* has more values in an example than the model.{1,2}s Input takes, \d+; [^\]\n]*")


@tf.autograph.experimental.do_not_convert  # contains no user code
def fit(features: Mapping[str, Any], inputs: Mapping[str, tf.TypeSpec]) -> dict[str, Any]:
    """Gives sparse and ragged features the kind and shape of the model's inputs.

    Values that are missing are 0, or empty texts; for a dense input of any width, up to
    the longest row of the batch. Dense features, and those that are not among the
    inputs, stay as they are.
    """
    return {name: _fit(name, values, inputs[name]) if name in inputs else values for name, values in features.items()}


def _fit(name: str, values: Any, spec: Any) -> Any:
    is_matrix = isinstance(values, tf.SparseTensor) and values.shape.rank == 2
    if not is_matrix and not isinstance(values, tf.RaggedTensor):
        return values
    # In the order of the rows without gaps, as they are stored: `preprocessing_fn` may
    # return a sparse tensor that has some.
    rows = (
        tf.RaggedTensor.from_value_rowids(values.values, values.indices[:, 0], values.dense_shape[0])
        if is_matrix
        else values
    )
    if isinstance(spec, tf.RaggedTensorSpec):
        return rows
    if spec.shape.rank != rows.shape.rank:
        return values
    width = spec.shape[1]
    if width is None and isinstance(spec, tf.SparseTensorSpec):
        return values
    if width is None:  # Keras would do it in some layers only: an Embedding with a mask fails
        return tf.sparse.to_dense(values) if is_matrix else rows.to_tensor(shape=[None, *spec.shape[1:]])
    longest = tf.reduce_max(tf.concat([rows.row_lengths(), [0]], 0))
    words = f"feature {name} has more values in an example than the model's Input takes, {width}"
    check = tf.debugging.assert_less_equal(
        longest, tf.cast(width, longest.dtype), f"{words}; make the Input wider, or cut the feature in preprocessing_fn"
    )
    with tf.control_dependencies([check] if check is not None else []):
        if isinstance(spec, tf.SparseTensorSpec):
            sparse = rows.to_sparse()
            return tf.SparseTensor(sparse.indices, sparse.values, tf.stack([rows.nrows(), width]))
        return rows.to_tensor(shape=[None, *spec.shape[1:]])


def explain(error: tf.errors.OpError) -> None:
    """Raises DataError if an example had more values than an input takes."""
    if found := _TOO_LONG.search(error.message):
        raise DataError(f"examples: {found[0]}".replace("\\'", "'")) from error
