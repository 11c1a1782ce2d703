"""Splits examples by a feature, as TFX does with its own ExampleGens."""

import pandas as pd
from ingestion import ingest_by
from tfx.proto import example_gen_pb2

from tfx_distribute.components import CsvExampleGen

USERS = [f"u{number % 7}" for number in range(100)]


def split_by(name):
    splits = [
        example_gen_pb2.SplitConfig.Split(name=split, hash_buckets=count) for split, count in (("train", 2), ("eval", 1))
    ]
    return example_gen_pb2.Output(split_config=example_gen_pb2.SplitConfig(splits=splits, partition_feature_name=name))


def test_all_examples_of_a_user_are_in_one_split(tmp_path):
    (tmp_path / "data").mkdir()
    table = pd.DataFrame({"user": USERS, "number": range(len(USERS)), "share": 0.5})
    table.to_csv(tmp_path / "data" / "a.csv", index=False)
    splits = ingest_by(CsvExampleGen(str(tmp_path / "data"), output_config=split_by("user")), tmp_path / "out")
    users = {name: {example["user"][0] for example in examples} for name, examples in splits.items()}
    assert all(users.values())
    assert not users["train"] & users["eval"]
    numbers = [example["number"][0] for examples in splits.values() for example in examples]
    assert sorted(numbers) == list(range(100))
    # The same as with TFX's: by the hash of the serialized feature.
    assert users["eval"] == {b"u0", b"u1", b"u2"}
