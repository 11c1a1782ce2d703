import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.data import model_inputs
from tfx_distribute.trainer_module.errors import DataError

# The second row has a gap, and there is nothing in the last.
SPARSE = tf.SparseTensor([[0, 0], [1, 1], [1, 2]], [1.0, 2.0, 3.0], [3, 3])
EMPTY = tf.SparseTensor(np.zeros([0, 2], np.int64), np.zeros([0], np.float32), [3, 0])


def fit(values, spec):
    return model_inputs.fit({"x": values}, {"x": spec})["x"]


def test_features_get_the_width_of_the_input_whatever_a_batch_has():
    assert fit(SPARSE, tf.TensorSpec([None, 4])).numpy().tolist() == [[1, 0, 0, 0], [2, 3, 0, 0], [0, 0, 0, 0]]
    assert fit(EMPTY, tf.TensorSpec([None, 1])).numpy().tolist() == [[0], [0], [0]]
    sparse = fit(SPARSE, tf.SparseTensorSpec([None, 4]))
    assert tf.sparse.to_dense(sparse).numpy().tolist() == [[1, 0, 0, 0], [2, 3, 0, 0], [0, 0, 0, 0]]
    words = fit(tf.SparseTensor([[0, 0]], ["a"], [2, 1]), tf.TensorSpec([None, 2], tf.string))
    assert words.numpy().tolist() == [[b"a", b""], [b"", b""]]
    vectors = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [1, 2])
    assert fit(vectors, tf.TensorSpec([None, 3, 2])).shape == [2, 3, 2]
    assert fit(vectors, tf.TensorSpec([None, None, 2])).shape == [2, 2, 2], "padded to the longest"


def test_inputs_of_any_width_are_padded_to_the_longest_row():
    assert fit(SPARSE, tf.TensorSpec([None, None])).numpy().tolist() == [[1, 0, 0], [0, 2, 3], [0, 0, 0]]
    assert fit(EMPTY, tf.TensorSpec([None, None])).shape == [3, 0]


def test_ragged_inputs_get_ragged_features():
    assert fit(SPARSE, tf.RaggedTensorSpec([None, None])).to_list() == [[1], [2, 3], []]
    assert fit(EMPTY, tf.RaggedTensorSpec([None, None])).to_list() == [[], [], []]


def test_other_features_stay_as_they_are():
    assert fit(SPARSE, tf.SparseTensorSpec([None, None])) is SPARSE
    assert model_inputs.fit({"x": SPARSE}, {})["x"] is SPARSE
    dense = tf.ones([2])
    assert fit(dense, tf.TensorSpec([None, 1])) is dense


def test_examples_with_too_many_values_are_named():
    graph = tf.function(lambda values: fit(values, tf.TensorSpec([None, 1])))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        graph(SPARSE)
    with pytest.raises(
        DataError, match=r"^examples: feature x has more values in an example than the model's Input takes, 1; make"
    ):
        model_inputs.explain(caught.value)
