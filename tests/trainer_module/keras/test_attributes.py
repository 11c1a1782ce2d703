import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.keras import attributes


class Holder:
    def __init__(self, **values):
        self.__dict__ |= values


class Key:
    def __str__(self):
        raise AssertionError("a path of nothing that is yielded")


def test_paths_of_what_objects_keep():
    first, second = tf.Variable(0.0), tf.Variable(0.0)
    owner = Holder(parts={1: [first], "deep": Holder(own=second)})
    owner.itself = owner
    found = dict(attributes.walk(owner))
    assert {path: each for path, each in found.items() if isinstance(each, tf.Variable)} == {
        "parts/1/0": first,
        "parts/deep/own": second,
    }


def test_texts_numbers_and_arrays_are_left_out():
    """There may be millions, such as the words of a vocabulary."""
    words = {Key(): "word", "rows": [1, 2.0, None, True, b"", np.zeros(2), np.float32(1.0), tf.constant(1.0)]}
    assert list(attributes.walk(Holder(words=words, name="name", size=3))) == []
