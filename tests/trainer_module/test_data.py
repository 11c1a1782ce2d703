import collections

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module import data as data_lib
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.features import Features
from tfx_distribute.trainer_module.job import Data, Schedule, Split

SCHEMA = 'feature { name: "number" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }\n' + (
    'feature { name: "label" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }'
)


@pytest.fixture
def numbers(tmp_path):
    """Makes data of the numbers 0 to n - 1, in two files."""

    def make(n: int) -> Data:
        for part in range(2):
            with tf.io.TFRecordWriter(str(tmp_path / f"part-{part}")) as writer:
                for number in range(part, n, 2):
                    feature = {
                        name: tf.train.Feature(int64_list=tf.train.Int64List(value=[number])) for name in ("number", "label")
                    }
                    writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        (tmp_path / "schema.pbtxt").write_text(SCHEMA)
        split = Split((str(tmp_path / "part-*"),), n)
        return Data(split, split, "label", None, str(tmp_path / "schema.pbtxt"), shuffle_buffer=100)

    return make


def reader(index: int, of: int) -> tf.distribute.InputContext:
    return tf.distribute.InputContext(num_input_pipelines=of, input_pipeline_id=index, num_replicas_in_sync=of)


def values(batches) -> list[list[int]]:
    return [features["number"].numpy().ravel().tolist() for features, _ in batches]


def test_counts_records_of_all_files(numbers):
    assert data_lib.count(numbers(101).train.file_patterns) == 101


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ConfigurationError, match="no file is named .*nothing"):
        data_lib.count([str(tmp_path / "nothing*")])


def test_gzipped_and_plain_files_do_not_mix(numbers, tmp_path):
    data = numbers(4)
    (tmp_path / "part-2.gz").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="some files are gzipped and some are not"):
        data_lib.read_records(data.train.file_patterns)


@pytest.mark.parametrize("readers", [1, 2, 3])
def test_a_step_takes_the_same_examples_however_many_read(numbers, readers):
    """A global batch of 12, whoever shares it, and every example once in each time round."""
    data = numbers(24)
    features = Features(data)

    def steps(of: int) -> list[list[int]]:
        shares = [
            values(data_lib.train_dataset(data, features, reader(index, of), 12 // of, seed=7).take(4))
            for index in range(of)
        ]
        return [sorted(number for share in step for number in share) for step in zip(*shares, strict=True)]

    alone, shared = steps(1), steps(readers)
    assert shared == alone
    for first, second in ((0, 1), (2, 3)):
        assert sorted(alone[first] + alone[second]) == list(range(24))
    assert alone[:2] != alone[2:], "shuffled anew each time round"


def test_seed_decides_on_the_order(numbers):
    data = numbers(24)
    features = Features(data)

    def order(seed: int) -> list[list[int]]:
        return values(data_lib.train_dataset(data, features, reader(0, 1), 6, seed).take(8))

    assert order(1) == order(1)
    assert order(1) != order(2)


@pytest.mark.parametrize(("examples", "readers", "batch"), [(10, 1, 4), (10, 3, 2), (9, 2, 4), (1, 4, 8)])
def test_evaluation_sees_each_example_once_in_as_many_steps_for_all(numbers, examples, readers, batch):
    data = numbers(examples)
    features = Features(data)
    steps = data_lib.eval_steps(data.train, readers, 1, batch)
    seen: collections.Counter[int] = collections.Counter()
    for index in range(readers):
        dataset = data_lib.eval_dataset(data.train, features, reader(index, readers), batch, 1, steps)
        batches = values(dataset.take(2 * steps))
        assert batches[:steps] == batches[steps:], "the same each time round"
        seen.update(number for numbers_of_batch in batches[:steps] for number in numbers_of_batch)
    assert seen == collections.Counter(range(examples))


def test_last_examples_of_an_evaluation_are_spread_over_replicas(numbers):
    """11 examples for two replicas of 4: one whole step, then 2 and 1, instead of 3 and none."""
    data = numbers(11)
    assert data_lib.eval_steps(data.train, 1, 2, 4) == 2
    dataset = data_lib.eval_dataset(data.train, Features(data), reader(0, 1), 4, 2, 2)
    assert [len(batch) for batch in values(dataset.take(4))] == [4, 4, 2, 1]


def test_evaluation_of_some_steps_is_the_same_in_parts(numbers):
    """Two steps of a global batch of 4, whoever divides them."""
    data = numbers(24)
    schedule = Schedule(per_replica_batch_size=2, eval_steps=2)
    feed = data_lib.Feed(Data(data.train, data.train, data.label, None, data.schema), Features(data), schedule, readers=1)
    inline = values(feed.evaluation(reader(0, 1), num_replicas=2).take(4))
    parts = [batch for part in range(3) for batch in values(feed.evaluation_part(part, 3, global_batch_size=4))]
    seen = [sorted(number for batch in batches for number in batch) for batches in (inline, parts)]
    assert seen[0] == seen[1]
    assert len(seen[0]) == 8


def test_label_with_gaps_is_refused(numbers, tmp_path):
    data = numbers(4)
    (tmp_path / "gaps.pbtxt").write_text('feature { name: "label" type: INT presence { min_count: 1 } }')
    with pytest.raises(ConfigurationError, match="label: not every example has the feature 'label'; fill the gaps"):
        Features(Data(data.train, None, "label", None, str(tmp_path / "gaps.pbtxt")))


def test_unknown_label_is_named(numbers):
    data = numbers(4)
    with pytest.raises(ConfigurationError, match="label: the examples have no feature 'lable'; they have label, number"):
        Features(Data(data.train, None, "lable", None, data.schema))
