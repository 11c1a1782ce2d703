"""Asks the newest pushed model which digit an image shows, with plain TensorFlow.

    python examples/digits/ask.py [FOLDER]

FOLDER has the pushed versions; by default runs/digits/serving.
"""

import sys
from pathlib import Path

import tensorflow as tf
from sklearn.datasets import load_digits

IMAGE = 100  # which of the 1,797


def main(folder: str = "runs/digits/serving") -> None:
    """Prints what the model predicts for an image, and what it shows."""
    newest = max(Path(folder).iterdir(), key=lambda version: int(version.name))
    model = tf.saved_model.load(str(newest))
    digits = load_digits()
    pixels = tf.train.Feature(float_list=tf.train.FloatList(value=digits.data[IMAGE]))
    example = tf.train.Example(features=tf.train.Features(feature={"pixels": pixels}))
    answers = model.signatures["serving_default"](examples=tf.constant([example.SerializeToString()]))
    (probabilities,) = answers["outputs"].numpy()
    print(f"image {IMAGE}: predicted {probabilities.argmax()}, true {digits.target[IMAGE]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
