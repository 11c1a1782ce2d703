"""Asks SavedModels that go wrong in ways that models of users do."""

import pytest
import tensorflow as tf
from tf_examples import make_example, write_examples

from tfx_distribute.trainer_module import asking
from tfx_distribute.trainer_module.asking import Questions
from tfx_distribute.trainer_module.errors import ConfigurationError

VALUES = [[1.0], [2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.fixture
def examples(tmp_path):
    """Examples with a few numbers, a label, and a name that one of them lacks."""
    path = str(tmp_path / "examples")
    bonus = [{}, {"bonus": 1.0}, {"bonus": 1.0}]
    write_examples(path, [make_example(x=x, kind="a label", **more) for x, more in zip(VALUES, bonus, strict=True)])
    return (path,)


def mean(parsed):
    return tf.reduce_sum(parsed["x"].to_tensor(), 1) / tf.cast(parsed["x"].row_lengths(), tf.float32)


def padded_mean(parsed):
    return tf.reduce_mean(parsed["x"].to_tensor(), 1)


def infinite_without_bonus(parsed):
    return mean(parsed) / tf.cast(parsed["bonus"].row_lengths(), tf.float32)


def random(parsed):
    return mean(parsed) + tf.random.uniform([])


def sequence(parsed):
    return tf.cumsum(parsed["x"].to_tensor(), 1)


def best(parsed):
    return tf.argmax(parsed["x"].to_tensor(-1.0), 1) + tf.cast(parsed["x"].bounding_shape(1), tf.int64)


def requires_label(parsed):
    return mean(parsed) + tf.reduce_sum(tf.cast(tf.strings.length(parsed["kind"]), tf.float32), 1)


def save(folder, predict):
    spec = {"x": tf.io.RaggedFeature(tf.float32), "bonus": tf.io.RaggedFeature(tf.float32)}
    if predict is requires_label:
        spec["kind"] = tf.io.FixedLenFeature([1], tf.string)

    def serve(examples):
        return {"outputs": predict(tf.io.parse_example(examples, spec))}

    module = tf.Module()
    module.serve = tf.function(serve, [tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(folder), {"serving_default": module.serve})
    return str(folder)


@pytest.mark.parametrize("predict", [mean, random, sequence, best])
def test_a_model_that_answers_keeps_the_requests(tmp_path, examples, predict):
    from tensorflow_serving.apis import prediction_log_pb2

    folder = save(tmp_path / "model", predict)
    assert asking.ask(Questions(folder, examples, without=("kind",), optional=("bonus",))) == ""
    records = tf.data.TFRecordDataset(f"{folder}/assets.extra/tf_serving_warmup_requests").as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(record).predict_log.request for record in records]
    sent = [tf.make_ndarray(log.inputs["examples"]).tolist() for log in logs]
    assert [len(batch) for batch in sent] == [3, 1, 1, 1, 1]
    assert not any(b"a label" in example for batch in sent for example in batch)
    assert {log.model_spec.signature_name for log in logs} == {"serving_default"}


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (
            padded_mean,
            r"depends on the others of the request: outputs is \[1\.\] alone, and \[0\.3333\] with others \(example 0",
        ),
        (infinite_without_bonus, "answers all examples together with outputs=inf; check"),
        (requires_label, r"does not answer all examples together \(signature serving_default\): .*Feature: kind \("),
    ],
)
def test_what_a_server_would_not_answer_is_refused(tmp_path, examples, predict, message):
    with pytest.raises(ConfigurationError, match=message):
        asking.ask(Questions(save(tmp_path / "model", predict), examples, without=("kind",), optional=("bonus",)))


def test_models_that_cannot_be_asked_are_named(tmp_path, examples):
    module = tf.Module()
    module.serve = tf.function(lambda other: {"outputs": other}, [tf.TensorSpec([None, 1], name="other")])
    tf.saved_model.save(module, str(tmp_path / "model"), {"serving_default": module.serve})
    assert "takes other, and not serialized examples" in asking.ask(Questions(str(tmp_path / "model"), examples))
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    assert asking.ask(Questions(str(tmp_path / "empty"), examples)) == "it has no signature serving_default"
    (tmp_path / "damaged").write_text("not a file of records")
    assert "damaged, record 0 at byte 0" in asking.ask(Questions(str(tmp_path / "empty"), (str(tmp_path / "damaged"),)))


def names(example: bytes) -> set[str]:
    return set(tf.train.Example.FromString(example).features.feature)


def test_requests_lack_labels_and_each_optional_feature_once():
    examples = [make_example(x=1.0, y=1, bonus=2.0), make_example(x=3.0, y=0)]
    together, first, second, lacking = asking.make_requests(examples, without=["y"], optional=["bonus"])
    assert [names(example) for example in together.examples] == [{"x", "bonus"}, {"x"}]
    assert (first.examples, second.examples) == (together.examples[:1], together.examples[1:])
    assert (first.row, second.row, lacking.row) == (0, 1, None)
    assert lacking.name == "an example without bonus"
    assert names(*lacking.examples) == {"x"}


@pytest.mark.parametrize("size", [10, asking.MAX_BYTES // 3])
def test_a_few_examples_are_read_and_not_many_bytes(tmp_path, size):
    paths = [str(tmp_path / name) for name in ("empty.gz", "some.gz")]
    for path, count in zip(paths, (0, 100), strict=True):
        write_examples(path, [b"x" * size] * count, "GZIP")
    examples = asking.read_examples(paths)
    assert len(examples) == (asking.MAX_EXAMPLES if size == 10 else 4)
