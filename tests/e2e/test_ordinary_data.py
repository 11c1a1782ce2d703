"""Trains on an ordinary table: a text label with gaps, texts, and numbers with gaps.

And asks the pushed model as a client does, without the label and without the gaps.
"""

import re

import numpy as np
import pytest
import tensorflow as tf
from tf_examples import make_example

pytestmark = pytest.mark.e2e

PIPELINE = """
name: reviews
module: model.py
data: {csv: data, require: [verdict, text]}
transform: {}
trainer:
  label: liked
  parameters: {strategy: one_device, per_replica_batch_size: 16, epochs: 6}
evaluate:
  metrics:
    BinaryAccuracy: {lower_bound: 0.8}
push: {}
"""
# The model does not read `author`, which goes through a vocabulary too.
MODEL = """
import tensorflow as tf
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    words = tf.strings.split(tf.squeeze(inputs["text"], 1)).to_sparse()
    return {
        "words": tft.compute_and_apply_vocabulary(words, num_oov_buckets=1, vocab_filename="words"),
        "stars": inputs["stars"],
        "author": tft.compute_and_apply_vocabulary(inputs["author"]),
        "liked": tft.compute_and_apply_vocabulary(inputs["verdict"], vocab_filename="verdicts"),
    }

def build_model(context):
    words = tf.keras.Input((None,), name="words", dtype="int64", ragged=True)
    stars = tf.keras.Input((1,), name="stars")
    size = context.transform_output.vocabulary_size_by_name("words") + 1
    rows = tf.keras.layers.Embedding(size, 8)(words)
    mean = tf.keras.layers.GlobalAveragePooling1D()(rows)
    joined = tf.keras.layers.concatenate([mean, 0.1 * stars])
    model = tf.keras.Model({"words": words, "stars": stars}, tf.keras.layers.Dense(1, activation="sigmoid")(joined))
    model.compile(tf.keras.optimizers.Adam(0.05), "binary_crossentropy")
    return model
"""


def write(folder):
    """Writes 312 rows, of which 12 lack a text or verdict; few have stars."""
    folder.mkdir()
    random = np.random.default_rng(0)
    rows = []
    for number in range(300):
        liked = number % 2
        count = random.integers(1, 4) + 57 * (number % 50 == 0)
        words = random.choice(["good", "great"] if liked else ["bad", "dull"], count)
        stars = random.integers(1, 6) if number % 40 == 0 else ""
        rows.append(f"{' '.join(words)} film,{stars},author {number % 7},{'yes' if liked else 'no'}")
    rows += [f"fine film,1,author {number}," for number in range(10)] + [",,author 1,", ",,author 2,no"]
    (folder / "reviews.csv").write_text("\n".join(["text,stars,author,verdict", *rows, ""]))


def test_a_pushed_model_answers_without_label_gaps_and_company(command, tmp_path):
    write(tmp_path / "data")
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    run = command("run", tmp_path / "pipeline.yaml")
    assert run.code == 0, run.output
    assert "left out   12 of 312 examples without a value of verdict (11), text (2)" in run.output
    shown = command("runs", "show", "--root", "runs/reviews")
    assert "left out  12 of 312 examples without a value of verdict (11), text (2)" in shown.output
    page = command("report", "--root", "runs/reviews", "-o", "report.html")
    assert page.code == 0, page.output
    assert (
        "Left out: 12 of 312 examples without a value of verdict (11), text (2)." in (tmp_path / "report.html").read_text()
    )
    pushed = re.search(r"^model +(/.*)$", run.output, re.M).group(1)
    serve = tf.saved_model.load(pushed).signatures["serving_default"]

    def ask(*requests: bytes) -> list[float]:
        return serve(examples=tf.constant(requests))["outputs"].numpy()[:, 0].tolist()

    (alone,) = ask(make_example(text="bad film"))
    with_long = ask(make_example(text="bad film"), make_example(text="great " * 500, stars=3))
    assert with_long[0] == pytest.approx(alone, rel=1e-5)
    assert ask(make_example(text="bad film", stars=0))[0] == pytest.approx(alone, rel=1e-5), "a missing number is 0"
    good, bad = ask(make_example(text="good film"), make_example(text="dull film"))
    assert abs(good - bad) > 0.5
