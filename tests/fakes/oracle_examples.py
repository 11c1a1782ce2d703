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
    import tf_examples

    from tfx_distribute.trainer_module.job.training_job import Split, TrainingData

    random = np.random.default_rng(5)

    def encode_png(x: np.ndarray) -> bytes:
        pixels = np.uint8(np.clip(128 + 40 * x.reshape(2, 2, 1), 0, 255))
        return tf.io.encode_png(np.tile(pixels, (2, 2, 1))).numpy()

    def example(number: int) -> bytes:
        x = random.normal(size=4)
        return tf_examples.make_example(
            x=x,
            z=random.normal(size=2),
            spike=float(number == 3),
            y=x.sum() + 0.1 * random.normal(),
            ids=random.integers(0, 20, 3),
            words=random.integers(0, 20, number % 7),
            rows=random.integers(0, 20, number % 5),
            hot=np.eye(3)[number % 3],
            weight=0.5 + number % 4,
            png=encode_png(x),
            text=" ".join(f"word{word}" for word in range(number % 5)),
        )

    splits = {}
    for name, count in EXAMPLES.items():
        tf_examples.write_examples(folder / name, map(example, range(count)))
        splits[name] = Split((str(folder / name),), count)
    sizes = {"x": 4, "z": 2, "spike": 1, "y": 1, "ids": 3, "hot": 3, "weight": 1}
    schema = tf_examples.make_schema(**{name: ("INT" if name == "ids" else "FLOAT", size) for name, size in sizes.items()})
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
