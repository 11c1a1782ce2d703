"""Trains on a folder of images, and asks the pushed model about an image file."""

import numpy as np
import pytest
import tensorflow as tf
from tf_examples import make_example

pytestmark = pytest.mark.e2e

NAMES = ("zero", "one", "two", "three")
PIPELINE = """
name: digits-in-files
module: model.py
data:
  images: data
  splits: {train: 4, eval: 1}
transform: {}
trainer:
  label: label
  parameters: {strategy: mirrored, accelerator_count: 2, per_replica_batch_size: 16, epochs: 6}
evaluate:
  metrics:
    SparseCategoricalAccuracy: {lower_bound: 0.9}
push: {}
"""
MODEL = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    return {"image": inputs["image"], "label": tft.compute_and_apply_vocabulary(inputs["label"], vocab_filename="label")}

def decode_features(features):
    image = tf.io.decode_image(features["image"][0], channels=1, expand_animations=False)
    return {**features, "image": tf.image.resize(image, [8, 8]) / 255.0}

def build_model(context):
    image = tf.keras.Input((8, 8, 1), name="image")
    hidden = tf.keras.layers.Dense(32, activation="relu")(tf.keras.layers.Flatten()(image))
    classes = context.transform_output.vocabulary_size_by_name("label")
    model = tf.keras.Model({"image": image}, tf.keras.layers.Dense(classes, activation="softmax")(hidden))
    model.compile(tf.keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def test_a_folder_of_images(command, tmp_path):
    from sklearn.datasets import load_digits

    digits = load_digits(n_class=len(NAMES))
    pixels = np.uint8(digits.images)[:, :, :, np.newaxis] * 15
    encode = (("png", tf.io.encode_png), ("JPG", lambda image: tf.io.encode_jpeg(image, quality=100)))
    for number, (image, digit) in enumerate(zip(pixels, digits.target, strict=True)):
        folder = tmp_path / "data" / NAMES[digit]
        folder.mkdir(parents=True, exist_ok=True)
        suffix, function = encode[number % 2]
        (folder / f"{number}.{suffix}").write_bytes(function(image).numpy())
    (tmp_path / "data" / ".DS_Store").touch()
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "model.py").write_text(MODEL)
    run = command("run", "pipeline.yaml")
    assert run.code == 0, run.output
    assert "✓ ImageExampleGen" in run.output
    (model,) = (tmp_path / "runs" / "digits-in-files" / "serving").iterdir()
    (vocabulary,) = model.rglob("assets/label")
    labels = vocabulary.read_text().split()
    assert sorted(labels) == sorted(NAMES)
    request = make_example(image=tf.io.encode_png(pixels[2]).numpy())
    answer = tf.saved_model.load(str(model)).signatures["serving_default"](tf.constant([request]))
    assert labels[np.argmax(answer["outputs"])] == NAMES[digits.target[2]]

    (tmp_path / "data" / "two" / "broken.jpg").write_bytes(b"not an image")
    broken = command("run", "pipeline.yaml")
    assert broken.code == 1
    assert f"{tmp_path}/data/two/broken.jpg is not a JPEG, PNG, GIF or BMP file, or is cut off" in broken.output
    assert "Traceback" not in broken.output
