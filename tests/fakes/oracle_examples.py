"""Writes the examples that the oracle trains on."""

from pathlib import Path

EXAMPLES = {"train": 26, "eval": 13}
STORED_SCHEMA = "stored.pbtxt"


def write_examples(folder: Path):
    """Writes examples with dense, sparse and ragged features, and their schema.

    The number of ids varies a lot from example to example. A second schema,
    `STORED_SCHEMA`, has images and texts for `decode_features` too.
    """
    import numpy as np
    import tensorflow as tf

    from tfx_distribute.trainer_module.job.training_job import Split, TrainingData

    random = np.random.default_rng(5)

    def encode_png(x: np.ndarray) -> bytes:
        pixels = np.uint8(np.clip(128 + 40 * x.reshape(2, 2, 1), 0, 255))
        return tf.io.encode_png(np.tile(pixels, (2, 2, 1))).numpy()

    def example(number: int) -> bytes:
        x = random.normal(size=4)
        features = {
            "x": tf.train.FloatList(value=x),
            "z": tf.train.FloatList(value=random.normal(size=2)),
            "spike": tf.train.FloatList(value=[float(number == 3)]),
            "y": tf.train.FloatList(value=[x.sum() + 0.1 * random.normal()]),
            "ids": tf.train.Int64List(value=random.integers(0, 20, 3)),
            "words": tf.train.Int64List(value=random.integers(0, 20, number % 7)),
            "rows": tf.train.Int64List(value=random.integers(0, 20, number % 5)),
            "hot": tf.train.FloatList(value=np.eye(3)[number % 3]),
            "weight": tf.train.FloatList(value=[0.5 + number % 4]),
            "png": tf.train.BytesList(value=[encode_png(x)]),
            "text": tf.train.BytesList(value=[" ".join(f"word{word}" for word in range(number % 5)).encode()]),
        }
        list_types = {
            "ids": "int64_list",
            "words": "int64_list",
            "rows": "int64_list",
            "png": "bytes_list",
            "text": "bytes_list",
        }
        feature = {name: tf.train.Feature(**{list_types.get(name, "float_list"): value}) for name, value in features.items()}
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    splits = {}
    for name, count in EXAMPLES.items():
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for number in range(count):
                writer.write(example(number))
        splits[name] = Split((str(folder / name),), count)
    sizes = {"x": 4, "z": 2, "spike": 1, "y": 1, "ids": 3, "hot": 3, "weight": 1}
    schema = "".join(
        f'feature {{ name: "{name}" type: {"INT" if name == "ids" else "FLOAT"} presence {{ min_fraction: 1 }} '
        f"shape {{ dim {{ size: {size} }} }} }}\n"
        for name, size in sizes.items()
    )
    schema += 'feature { name: "words" type: INT }\nfeature { name: "rows" type: INT }\n'
    schema += (
        'tensor_representation_group { key: "" value { tensor_representation { key: "rows" value { ragged_tensor {\n'
        '  feature_path { step: "rows" } } } } } }\n'
    )
    (folder / "schema.pbtxt").write_text(schema)
    stored = "".join(
        f'feature {{ name: "{name}" type: BYTES presence {{ min_fraction: 1 }} shape {{ }} }}\n' for name in ("png", "text")
    )
    (folder / STORED_SCHEMA).write_text(schema + stored)
    return TrainingData(splits["train"], splits["eval"], "y", None, str(folder / "schema.pbtxt"))
