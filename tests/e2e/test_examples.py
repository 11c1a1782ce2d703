"""Runs the examples of images, texts and recommendation, and asks the pushed models."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.e2e


def run(command, request, tmp_path, name: str) -> tuple[str, Path]:
    """Runs an example; returns what was printed, and the folder of the pushed model."""
    finished = command("run", request.config.rootpath / "examples" / name / "pipeline.yaml")
    assert finished.code == 0, finished.output
    (model,) = (tmp_path / "runs" / name / "serving").iterdir()
    return finished.output, model


def ask(model: Path, **features: bytes) -> dict[str, np.ndarray]:
    feature = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])) for name, value in features.items()}
    request = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    outputs = tf.saved_model.load(str(model)).signatures["serving_default"](tf.constant([request]))
    return {name: value.numpy()[0] for name, value in outputs.items()}


def test_images(command, request, tmp_path):
    from sklearn.datasets import load_digits

    output, model = run(command, request, tmp_path, "images")
    assert "exported" in output
    digits = load_digits()
    png = tf.io.encode_png(np.uint8(digits.images[7])[:, :, np.newaxis] * 15).numpy()
    assert np.argmax(ask(model, image=png)["outputs"]) == digits.target[7]
    pipeline = request.config.rootpath / "examples" / "images" / "fine_tune.yaml"
    finished = command("run", pipeline, "-p", "base_model=runs/images/serving")
    assert finished.code == 0, finished.output
    assert "runs/images/serving, 7 of 9 weights" in finished.output


def test_search_on_taxi(command, request):
    finished = command("run", request.config.rootpath / "examples" / "taxi" / "tune.yaml")
    assert finished.code == 0, finished.output
    assert "4 epochs, continues trial" in finished.output
    assert finished.output.count("628  ") >= 3, "the best of the trials train to the end"


def test_text(command, request, tmp_path):
    _, model = run(command, request, tmp_path, "text")
    assert np.argmax(ask(model, text=b"Create a coroutine and schedule it in the event loop.")["outputs"]) == 0
    assert np.argmax(ask(model, text=b"Fail if the two objects are not equal.")["outputs"]) == 3
    assert ask(model, text=b"")["outputs"].shape == (4,)


def test_recommendation(command, request, tmp_path):
    _, model = run(command, request, tmp_path, "recommendation")
    user = ask(model, user=b"user 41", item=b"item 1")["output_0"]
    items = [ask(model, user=b"user 41", item=f"item {number}".encode())["output_1"] for number in (21, 221, 22, 235)]
    liked, others = [user @ item for item in items[:2]], [user @ item for item in items[2:]]
    assert min(liked) > max(others), "users with the same taste have chosen them"
