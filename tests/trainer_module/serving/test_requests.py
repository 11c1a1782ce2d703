import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.serving import requests


def serialized(**features: list) -> bytes:
    kinds = {bytes: "bytes_list", float: "float_list", int: "int64_list"}
    example = tf.train.Example()
    for name, values in features.items():
        getattr(example.features.feature[name], kinds[type(values[0])]).value.extend(values)
    return example.SerializeToString()


def names(example: bytes) -> set[str]:
    return set(tf.train.Example.FromString(example).features.feature)


def test_requests_lack_labels_and_each_optional_feature_once():
    examples = [serialized(x=[1.0], y=[1], bonus=[2.0]), serialized(x=[3.0], y=[0])]
    together, first, second, lacking = requests.make(examples, without=["y"], optional=["bonus"])
    assert [names(example) for example in together.examples] == [{"x", "bonus"}, {"x"}]
    assert (first.examples, second.examples) == (together.examples[:1], together.examples[1:])
    assert (first.row, second.row, lacking.row) == (0, 1, None)
    assert lacking.name == "an example without bonus"
    assert names(*lacking.examples) == {"x"}


@pytest.mark.parametrize("size", [10, requests.MAX_BYTES // 3])
def test_a_few_examples_are_read_and_not_many_bytes(tmp_path, size):
    paths = [str(tmp_path / name) for name in ("empty.gz", "some.gz")]
    for path, count in zip(paths, (0, 100), strict=True):
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for _ in range(count):
                writer.write(b"x" * size)
    examples = requests.read_examples(paths)
    assert len(examples) == (requests.MAX_EXAMPLES if size == 10 else 4)
