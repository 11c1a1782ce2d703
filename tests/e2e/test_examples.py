"""Runs the examples of images, texts and recommendation, and asks the pushed models."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tf_examples import make_example

pytestmark = pytest.mark.e2e


# Half of what images and texts are trained for is enough for their thresholds.
SHORT = ("-p", "epochs=8")


def run(command, request, tmp_path, name: str, *words: str) -> tuple[str, Path]:
    """Runs an example; returns what was printed, and the folder of the pushed model."""
    finished = command("run", request.config.rootpath / "examples" / name / "pipeline.yaml", *words)
    assert finished.code == 0, finished.output
    (model,) = (tmp_path / "runs" / name / "serving").iterdir()
    return finished.output, model


def ask(model: Path, **features: bytes) -> dict[str, np.ndarray]:
    outputs = tf.saved_model.load(str(model)).signatures["serving_default"](tf.constant([make_example(**features)]))
    return {name: value.numpy()[0] for name, value in outputs.items()}


def test_images(command, request, tmp_path):
    from sklearn.datasets import load_digits

    output, model = run(command, request, tmp_path, "images", *SHORT)
    (loss,) = re.findall(r"^exported +epoch \d+, .*val_loss ([\d.]+)", output, re.M)
    served = command("models", "list", "--root", model.parents[1])
    assert f"loss {loss}" in served.output, "of the exported epoch, not the last one"
    digits = load_digits()
    png = tf.io.encode_png(np.uint8(digits.images[7])[:, :, np.newaxis] * 15).numpy()
    assert np.argmax(ask(model, image=png)["outputs"]) == digits.target[7]
    pipeline = request.config.rootpath / "examples" / "images" / "fine_tune.yaml"
    finished = command("run", pipeline, "-p", "base_model=runs/images/serving", *SHORT)
    assert finished.code == 0, finished.output
    assert "runs/images/serving, 7 of 9 weights" in finished.output


def test_text(command, request, tmp_path):
    _, model = run(command, request, tmp_path, "text", *SHORT)
    assert np.argmax(ask(model, text=b"Create a coroutine and schedule it in the event loop.")["outputs"]) == 0
    assert np.argmax(ask(model, text=b"Fail if the two objects are not equal.")["outputs"]) == 3
    assert ask(model, text=b"")["outputs"].shape == (4,)


def test_recommendation(command, request, tmp_path):
    _, model = run(command, request, tmp_path, "recommendation")
    serve = tf.saved_model.load(str(model)).signatures["serving_default"]
    answers = serve(tf.constant([make_example(user=b"user 41", item=f"item {item}".encode()) for item in range(1000)]))
    products = np.sum(answers["output_0"] * answers["output_1"], axis=1)
    # The servers' updates come in any order, so that a single item may be anywhere.
    is_chosen = np.arange(1000) % 20 == 41 % 20
    is_above = products[is_chosen, np.newaxis] > products[~is_chosen]
    assert is_above.mean() > 0.9, "users with the same taste have chosen them"
