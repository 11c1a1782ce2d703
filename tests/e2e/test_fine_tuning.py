"""Starts trainings from models of earlier runs, as a user does it."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2
from small_project import write_project

from tfx_distribute.trainer_module.state.base_model import location, weight_files

pytestmark = pytest.mark.e2e

QUICK = ("-p", "train_steps=1", "-p", "learning_rate=1e-9")


def is_cached(output: str, node: str) -> bool:
    return re.search(rf"✓ {node} +(\S+)", output)[1] == "cached"


def accuracy(output: str) -> float:
    return float(re.search(r"SparseCategoricalAccuracy +([\d.]+)", output)[1])


def models_in_metadata(root: Path) -> dict[str, metadata_store_pb2.Artifact]:
    """Returns the last Model artifact of each address in ML Metadata."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(root / "metadata.sqlite")
    store = metadata_store.MetadataStore(config)
    return {artifact.uri: artifact for artifact in sorted(store.get_artifacts_by_type("Model"), key=lambda model: model.id)}


def test_digits_go_on_from_the_latest_blessed_model_and_from_a_path(command, request, tmp_path):
    pipeline = request.config.rootpath / "examples" / "digits" / "pipeline.yaml"
    first = command("run", pipeline, "-p", "base_model=latest_blessed", "-p", "epochs=10")
    assert first.code == 0, first.output
    assert "started from" not in first.output, "there is no blessed model yet"

    # A training that changes nothing has the accuracy of the first.
    second = command("run", pipeline, "-p", "base_model=latest_blessed", *QUICK)
    assert second.code == 0, second.output
    assert is_cached(second.output, "Sharder")
    assert not is_cached(second.output, "Trainer")
    assert accuracy(second.output) == accuracy(first.output) >= 0.95
    base, taken = re.search(r"started from +(\S+), (\d+ of \d+) weights", second.output).groups()
    assert taken == "6 of 6"
    models = models_in_metadata(tmp_path / "runs" / "digits")
    (tuned,) = [model for model in models.values() if model.custom_properties["base_model"].string_value]
    assert tuned.custom_properties["base_model"].string_value == base
    assert base in models

    # A path: imported into ML Metadata. The cache knows it.
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    arguments = ("run", pipeline, "-p", f"base_model={copy}", *QUICK)
    third = command(*arguments)
    assert third.code == 0, third.output
    assert accuracy(third.output) == accuracy(first.output)
    imported = models_in_metadata(tmp_path / "runs" / "digits")[str(copy)]
    assert imported.custom_properties["fingerprint"].string_value == location.fingerprint(str(copy))
    assert is_cached(command(*arguments).output, "Trainer")


PIPELINE = """\
name: words
module: model.py
data: {csv: data, splits: {train: 4, eval: 1}}
transform: {}
trainer:
  label: y
  parameters: {epochs: 3, per_replica_batch_size: 16}
  hparams: {learning_rate: 0.05}
evaluate:
  metrics: {ExampleCount: {lower_bound: 0}}
push: {}
"""
MODULE = """\
import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    word = tft.compute_and_apply_vocabulary(inputs["word"], vocab_filename="words", num_oov_buckets=1)
    return {"word": word, "y": inputs["y"]}


def build_model(context):
    size = context.transform_output.vocabulary_size_by_name("words") + 1
    word = tf.keras.Input((1,), name="word", dtype=tf.int64)
    rows = tf.keras.layers.Embedding(size, 4, name="words")(word)
    model = tf.keras.Model({"word": word}, tf.keras.layers.Dense(1, name="head")(tf.keras.layers.Flatten()(rows)))
    model.compile(tf.keras.optimizers.SGD(context.hparams["learning_rate"]), "mse")
    return model
"""


def read(model: Path) -> tuple[list[str], np.ndarray]:
    """Returns the words of a model and the rows of its embedding."""
    found = location.find(str(model))
    (weight,) = [weight for weight in weight_files.read_saved_model(found)[0] if weight.name == "words/embeddings"]
    return (Path(found) / "assets" / "words").read_text().split(), weight.read()


def test_rows_of_a_vocabulary_that_has_grown_are_kept(command, tmp_path):
    """The new words are the most frequent ones, so that all others move."""
    rows = [f"{word},{number % 5}\n" for word, count in (("a", 90), ("b", 60), ("c", 30)) for number in range(count)]
    file = write_project(tmp_path, PIPELINE, MODULE, "word,y\n" + "".join(rows))
    first = command("run", file)
    assert first.code == 0, first.output
    old = Path(re.search(r"^model +(/.*)$", first.output, re.M)[1])

    rows += [f"{word},{number % 5}\n" for word, count in (("d", 120), ("c", 50)) for number in range(count)]
    (tmp_path / "data" / "a.csv").write_text("word,y\n" + "".join(rows))
    with_vocabulary = "base_model: {path: latest_blessed, vocabularies: {words: words}}\n  label: y"
    file.write_text(PIPELINE.replace("label: y", with_vocabulary))
    second = command("run", file, "-p", "learning_rate=0.0")
    assert second.code == 0, second.output
    assert "3 of 3 weights, 3 of 4 vocabulary entries" in second.output
    new = Path(re.search(r"^model +(/.*)$", second.output, re.M)[1])

    (old_words, old_rows), (new_words, new_rows) = read(old), read(new)
    assert {*new_words} == {*old_words, "d"}
    assert new_words[:3] != old_words, "the rows have moved"
    for word in old_words:
        np.testing.assert_array_equal(new_rows[new_words.index(word)], old_rows[old_words.index(word)], err_msg=word)
    np.testing.assert_array_equal(new_rows[4], old_rows[3], err_msg="other words")
    assert not any(np.array_equal(new_rows[new_words.index("d")], row) for row in old_rows)
