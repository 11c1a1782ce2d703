"""Tests published data: missing values, strings, coordinates, and a computed label."""

import re

import pytest

pytestmark = pytest.mark.e2e


def test_taxi(command, request, tmp_path):
    pipeline = request.config.rootpath / "examples" / "taxi" / "pipeline.yaml"
    run = command(
        "run", pipeline, "-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2", "-p", "learning_rate=0.002"
    )
    assert run.code == 0, run.output
    assert float(re.search(r"AUC +([\d.]+) +>= 0.8, change of at least -0.01  met", run.output).group(1)) > 0.85
    # Requests to a served model have no tips: the model predicts them.
    (model,) = (tmp_path / "runs" / "taxi" / "serving").iterdir()
    text = (model / "saved_model.pb").read_bytes()
    assert b"tips" in text, "the evaluator's signature has them"
    assert_serves_without_tips(model)


def assert_serves_without_tips(model) -> None:
    import tensorflow as tf

    def number(value: float) -> tf.train.Feature:
        return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))

    def whole(value: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    def text(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    def trip(payment: bytes) -> bytes:
        features = {
            "trip_miles": number(3.5),
            "fare": number(12.0),
            "trip_seconds": whole(900),
            "trip_start_hour": whole(19),
            "trip_start_day": whole(6),
            "trip_start_month": whole(5),
            "payment_type": text(payment),
            "company": text(b"Taxi Affiliation Services"),
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    serve = tf.saved_model.load(str(model)).signatures["serving_default"]
    card, cash = serve(tf.constant([trip(b"Credit Card"), trip(b"Cash")]))["outputs"].numpy().ravel()
    assert card > cash, "tips in cash are not in the data"
