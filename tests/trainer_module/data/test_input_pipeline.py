import collections
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tf_examples import make_example, make_schema, write_examples

from tfx_distribute.trainer_module.data import input_pipeline as data_lib
from tfx_distribute.trainer_module.data import record_stream
from tfx_distribute.trainer_module.data.example_functions import ExampleFunctions
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.training_job import InputOptions, Split, TrainingData, TrainingOptions


@pytest.fixture
def numbers(tmp_path):
    """Makes data of the numbers 0 to n - 1.

    Number g is in shard g % shards; without shards, the data are two files.
    """

    def make(n: int, shards: int = 0, compression: str = "") -> TrainingData:
        files = [str(tmp_path / f"part-{part}{'.gz' if compression else ''}") for part in range(shards or 2)]
        for part, file in enumerate(files):
            of_part = [make_example(number=number, label=number) for number in range(part, n, len(files))]
            write_examples(file, of_part, compression)
        (tmp_path / "schema.pbtxt").write_text(make_schema(number=("INT", 1), label=("INT", 1)))
        split = Split(tuple(files), n, sharded=shards > 0)
        return TrainingData(split, split, "label", None, str(tmp_path / "schema.pbtxt"))

    return make


def reader(index: int, of: int) -> tf.distribute.InputContext:
    return tf.distribute.InputContext(num_input_pipelines=of, input_pipeline_id=index, num_replicas_in_sync=of)


def feed(
    data: TrainingData, training_options: TrainingOptions, readers: int = 1, replicas: int = 0, **input_options
) -> data_lib.InputPipeline:
    plan = make_plan(training_options, data.train.num_examples, replicas or readers)
    batches = (replicas or readers) * training_options.gradient_accumulation_steps // readers
    return data_lib.InputPipeline(
        data, Features(data), training_options, InputOptions(**input_options), plan, readers, batches
    )


def values(batches) -> list[list[int]]:
    return [features["number"].numpy().ravel().tolist() for features, _ in batches]


def trained(batches) -> list[list[int]]:
    return values(batch for batch, _ in batches)


def trained_on(
    data: TrainingData, training_options: TrainingOptions, readers: int, passes: int, **input_options
) -> list[list[list[int]]]:
    """Returns the batches of each of `readers` processes in `passes` passes."""
    fed = feed(data, training_options, readers, **input_options)
    count = passes * fed.plan.steps_per_pass * fed.batches
    return [trained(fed.train(reader(index, readers)).take(count)) for index in range(readers)]


def augment(features, label, seed):
    return features, tf.random.stateless_uniform([1], seed, maxval=2**62, dtype=tf.int64)


def augmented_on(data: TrainingData, batch: int, readers: int, passes: int, **options) -> dict[tuple[int, int], int]:
    """Returns the augmented label of each number in each pass."""
    options = TrainingOptions(batch, epochs=passes, seed=4, **options)
    fed = feed(data, options, readers)
    fed = replace(fed, features=Features(data, ExampleFunctions(augment=augment)))
    seen: dict[tuple[int, int], int] = {}
    for index in range(readers):
        examples = [
            (int(number), int(label))
            for (features, labels), _ in fed.train(reader(index, readers)).take(
                passes * fed.plan.steps_per_pass * fed.batches
            )
            for number, label in zip(features["number"][:, 0], labels[:, 0], strict=True)
        ]
        per_pass = len(examples) // passes
        seen |= {(position // per_pass, number): label for position, (number, label) in enumerate(examples)}
    return seen


def test_augmentation_depends_on_example_and_pass_alone(numbers):
    data = numbers(24, shards=2)
    once = augmented_on(data, batch=4, readers=1, passes=3)
    assert len(once) == len(set(once.values())) == 3 * 24
    assert augmented_on(data, batch=3, readers=2, passes=3) == once
    assert augmented_on(data, batch=3, readers=2, passes=3, drop_remainder=True) == once


def test_augmentation_is_the_same_after_a_restart(numbers):
    data = numbers(20)
    for options in (TrainingOptions(3, epochs=3), TrainingOptions(3, epochs=3, drop_remainder=True)):
        fed = replace(feed(data, options), features=Features(data, ExampleFunctions(augment=augment)))
        labels = [batch[1].numpy().tolist() for batch, _ in fed.train(reader(0, 1)).take(20)]
        resumed = [batch[1].numpy().tolist() for batch, _ in fed.train(reader(0, 1), first_step=9).take(11)]
        assert resumed == labels[9:]


def test_zeros_of_ragged_features_have_their_rank(numbers):
    def decode(features):
        vectors = tf.zeros([features["number"][0], 4])
        return {**features, "vectors": vectors, "nested": tf.RaggedTensor.from_row_lengths(tf.range(3), [1, 2])}

    fed = replace(feed(data := numbers(6), TrainingOptions(3, epochs=1)), features=Features(data, ExampleFunctions(decode)))
    zeros, _ = fed.zeros()
    (real, _), _ = next(iter(fed.train(reader(0, 1))))
    for name in ("vectors", "nested"):
        assert zeros[name].ragged_rank == real[name].ragged_rank
        assert zeros[name].flat_values.shape[1:] == real[name].flat_values.shape[1:]
        assert zeros[name].nrows() == 3


def test_evaluation_is_not_augmented(numbers):
    data = numbers(5)
    functions = ExampleFunctions(augment=lambda features, label, seed: (features, label + 1))
    fed = replace(feed(data, TrainingOptions(5, epochs=1)), features=Features(data, functions))
    ((features, label),) = fed.evaluation(reader(0, 1), 1).take(1)
    assert np.array_equal(features["number"], label)


def test_counts_records_of_all_files(numbers):
    assert record_stream.count(numbers(101).train.files) == 101


@pytest.mark.parametrize(
    ("shards", "readers", "examples", "cache"),
    [(0, 3, 101, "none"), (1, 2, 128, "memory"), (6, 4, 129, "none"), (8, 2, 101, "memory"), (24, 2, 101, "none")],
)
def test_each_example_is_seen_once_each_time_round(numbers, shards, readers, examples, cache):
    """All processes take the same number of batches, and no batch is empty."""
    data = numbers(examples, shards, "GZIP" if cache == "memory" else "")
    # 16: shards of 128 examples are a whole number of blocks, and one of 129 has one
    # more.
    seen = trained_on(
        data, TrainingOptions(4, epochs=1), readers, passes=3, shuffle_buffer_size=16, cycle_length=5, cache=cache
    )
    steps = -(-examples // (4 * readers))
    rounds = []
    for turn in range(3):
        of_turn = [batch for batches in seen for batch in batches[turn * steps : (turn + 1) * steps]]
        sizes = {len(batch) for batch in of_turn}
        assert min(sizes) > 0
        assert max(sizes) <= 4
        assert max(sizes) - min(sizes) <= 1
        assert collections.Counter(number for batch in of_turn for number in batch) == collections.Counter(range(examples))
        rounds.append(of_turn)
    assert rounds[0] != rounds[1], "shuffled anew"


@pytest.mark.parametrize(("shards", "readers"), [(0, 3), (1, 2), (6, 4)])
def test_a_step_takes_the_same_examples_however_many_read(numbers, shards, readers):
    data = numbers(101, shards)

    def steps(of: int) -> list[list[int]]:
        shares = trained_on(data, TrainingOptions(12 // of, epochs=1), of, passes=2, shuffle_buffer_size=32)
        return [sorted(number for share in step for number in share) for step in zip(*shares, strict=True)]

    assert steps(readers) == steps(1)


@pytest.mark.parametrize(("shards", "readers", "own"), [(4, 2, {0, 2}), (6, 3, {0, 3}), (4, 4, {0})])
def test_a_process_reads_files_of_its_own(numbers, tmp_path, shards, readers, own):
    """A process reads its files even if those of others are missing."""
    data = numbers(48, shards)
    for shard in set(range(shards)) - own:
        (tmp_path / f"part-{shard}").unlink()
    batches = trained(feed(data, TrainingOptions(4, epochs=1), readers).train(reader(0, readers)).take(48 // 4 // readers))
    assert sorted(number for batch in batches for number in batch) == list(range(0, 48, readers))


@pytest.mark.parametrize("cache", ["none", "memory"])
def test_small_unsharded_files_are_shuffled_together(numbers, cache):
    """They may be in the order of the days on which they were written."""
    data = numbers(60, shards=30)
    data = replace(data, train=replace(data.train, sharded=False))
    (batches,) = trained_on(data, TrainingOptions(60, epochs=2), 1, passes=2, shuffle_buffer_size=60, cache=cache)
    one, other = batches
    assert sorted(one) == sorted(other) == list(range(60))
    assert one != other
    of_file = [number % 30 for number in one]
    assert sum(first == second for first, second in itertools.pairwise(of_file)) < 10, "two of a file need not follow"


def test_batches_of_one_size_run_on_into_the_next_time_round(numbers):
    data = numbers(10, shards=2)
    fed = feed(data, TrainingOptions(4, epochs=1, drop_remainder=True))
    batches = trained(fed.train(reader(0, 1)).take(5))
    assert [len(batch) for batch in batches] == [4] * 5
    seen = [number for batch in batches for number in batch]
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))


@pytest.mark.parametrize(
    ("shards", "readers", "fixed", "cache"),
    [
        (0, 3, False, "none"),
        (4, 2, False, "memory"),
        (6, 4, False, "none"),
        (5, 2, True, "none"),
        (12, 1, False, "memory"),
    ],
)
def test_reading_goes_on_after_any_step(numbers, shards, readers, fixed, cache):
    """Batches and shares are the same as without the stop, also after some passes."""
    training_options = TrainingOptions(3, epochs=1, drop_remainder=fixed, gradient_accumulation_steps=2)
    fed = feed(numbers(101, shards), training_options, readers, shuffle_buffer_size=16, cycle_length=5, cache=cache)
    first_steps, steps = (6, 25), 20
    for index in {0, readers - 1}:
        read = list(fed.train(reader(index, readers)).take((max(first_steps) + steps) * fed.batches))
        batches, shares = trained(read), [float(share) for _, share in read]
        for first_step in first_steps:
            # A tensor, as where workers of parameter servers share one function.
            begin = tf.constant(first_step, tf.int64)
            rest = list(fed.train(reader(index, readers), begin).take(steps * fed.batches))
            expected = slice(first_step * fed.batches, (first_step + steps) * fed.batches)
            assert trained(rest) == batches[expected]
            assert [float(share) for _, share in rest] == shares[expected]


def test_reading_begins_at_the_shard_of_the_first_step(numbers):
    data = numbers(48, shards=6)
    fed = feed(data, TrainingOptions(4, epochs=1), cycle_length=1, cache="none")
    batches = trained(fed.train(reader(0, 1)).take(18))
    for file in data.train.files[:4]:
        Path(file).unlink()
    rest = fed.train(reader(0, 1), tf.constant(9, tf.int64)).take(3)
    assert trained(rest) == batches[9:12]


def test_each_example_counts_the_same_whatever_batch_it_is_in(numbers):
    """Has 13 examples in two steps, with two batches for each of two processes."""
    fed = feed(numbers(13), TrainingOptions(2, epochs=1), readers=2, replicas=4)
    batches = [list(fed.train(reader(index, 2)).take(4)) for index in range(2)]
    for step in range(2):
        of_step = [element for own in batches for element in own[2 * step : 2 * step + 2]]
        sizes = [int(tf.size(label)) for (_, label), _ in of_step]
        assert [float(share) for _, share in of_step] == pytest.approx([size / sum(sizes) for size in sizes])


def test_seed_decides_on_the_order(numbers):
    data = numbers(24, shards=2)

    def order(seed: int) -> list[list[list[int]]]:
        return trained_on(data, TrainingOptions(6, epochs=1, seed=seed), 1, passes=2)

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_shuffle_buffer_follows_from_the_bytes():
    def size(num_examples: int, num_bytes: int, asked: int = 0) -> int:
        return record_stream.shuffle_buffer_size(
            Split(("a",), num_examples, num_bytes), InputOptions(shuffle_buffer_size=asked)
        )

    assert size(1000, 10**6) == 1000, "all, where they are few"
    assert size(10**7, 10**9) == 10_000
    assert size(10**6, 10**11) == 671, "64 MiB of 100 kB each"
    assert size(10**7, 10**9, asked=5) == 5


@pytest.mark.parametrize(
    ("shards", "examples", "readers", "batch"), [(0, 10, 1, 4), (0, 10, 3, 2), (4, 10, 3, 2), (4, 9, 2, 4), (1, 4, 4, 8)]
)
def test_evaluation_sees_each_example_once_in_as_many_steps_for_all(numbers, shards, examples, readers, batch):
    data = numbers(examples, shards)
    evaluated = data_lib.InputPipeline(data, Features(data), TrainingOptions(batch), InputOptions(), None, readers, 1)
    steps = evaluated.eval_steps(readers)
    seen: collections.Counter[int] = collections.Counter()
    for index in range(readers):
        batches = values(evaluated.evaluation(reader(index, readers), readers).take(2 * steps))
        assert batches[:steps] == batches[steps:], "the same each time round"
        assert min(len(batch) for batch in batches) > 0
        seen.update(number for numbers_of_batch in batches[:steps] for number in numbers_of_batch)
    assert seen == collections.Counter(range(examples))


def test_examples_of_an_evaluation_are_spread_over_its_batches(numbers):
    """Batches of 11 examples for two replicas of 4: 3, 2, 3, 3 and not 4, 4, 3, 0."""
    data = numbers(11)
    evaluated = data_lib.InputPipeline(data, Features(data), TrainingOptions(4), InputOptions(), None, 1, 1)
    assert evaluated.eval_steps(2) == 2
    sizes = [len(batch) for batch in values(evaluated.evaluation(reader(0, 1), 2).take(4))]
    assert (sum(sizes), sorted(sizes)) == (11, [2, 3, 3, 3])


def test_eval_split_that_is_smaller_than_the_replicas_is_refused():
    with pytest.raises(ConfigurationError, match="^eval split: 4 replicas evaluate, but it has 3 examples; hold out at"):
        data_lib.eval_steps(Split((), 3), 4, 4)


@pytest.mark.parametrize("shards", [0, 4])
def test_evaluation_of_some_steps_is_the_same_in_parts(numbers, shards):
    """Two steps of a global batch of 4 are the same examples in any division."""
    data = numbers(24, shards)
    evaluated = data_lib.InputPipeline(data, Features(data), TrainingOptions(2, eval_steps=2), InputOptions(), None, 1, 1)
    inline = values(evaluated.evaluation(reader(0, 1), num_replicas=2).take(4))
    whole = evaluated.of_global_batch(2)
    parts = [batch for part in range(3) for batch in values(whole.evaluation_part(part, 3))]
    seen = [sorted(number for batch in batches for number in batch) for batches in (inline, parts)]
    assert seen[0] == seen[1]
    assert len(seen[0]) == 8


def test_label_with_gaps_is_refused(numbers, tmp_path):
    data = numbers(4)
    (tmp_path / "gaps.pbtxt").write_text('feature { name: "label" type: INT presence { min_count: 1 } }')
    with pytest.raises(ConfigurationError, match=r"the feature 'label'; fill the gaps.*require: \[label\] under data$"):
        Features(TrainingData(data.train, None, "label", None, str(tmp_path / "gaps.pbtxt")))


def test_unknown_label_is_named(numbers):
    data = numbers(4)
    with pytest.raises(ConfigurationError, match="label: the examples have no feature 'lable'; they have label, number"):
        Features(TrainingData(data.train, None, "lable", None, data.schema))


@pytest.mark.parametrize(
    ("steps", "class_weight", "expected"),
    [(1, "", [1.0, 2.0]), (1, "1: 3", [1.0, 6.0]), (2, "", [[1.0, 1.5], [2.0, 2.5]]), (2, "1: 3", [[1.0, 1.5], [6.0, 7.5]])],
)
def test_weights_of_examples_and_of_steps_of_sequences(tmp_path, steps, class_weight, expected):
    file = str(tmp_path / "data")
    weights = [[number + 1.0, number + 1.5][:steps] for number in range(2)]
    write_examples(file, [make_example(label=number, weight=weight) for number, weight in enumerate(weights)])
    (tmp_path / "schema.pbtxt").write_text(make_schema(label=("INT", 1), weight=("FLOAT", steps)))
    split = Split((file,), 2)
    options = TrainingOptions(2, epochs=1, class_weight=class_weight)
    for names in (("label", "weight"), ({"out": "label"}, {"out": "weight"})):
        data = TrainingData(split, split, names[0], None, str(tmp_path / "schema.pbtxt"), example_weight=names[1])
        (_, *targets), _ = next(iter(feed(data, options).train(reader(0, 1), first_step=0)))
        label, weights = (next(iter(each.values())) if isinstance(each, dict) else each for each in targets)
        order = np.argsort(label.numpy().ravel())
        np.testing.assert_allclose(weights.numpy()[order], expected)


@pytest.mark.parametrize(
    ("inputs", "kind", "width"),
    [
        ({}, tf.SparseTensor, 1),
        ({"x": tf.TensorSpec([None, None])}, tf.Tensor, 1),
        ({"x": tf.TensorSpec([None, 12])}, tf.Tensor, 12),
        ({"x": tf.SparseTensorSpec([None, 12])}, tf.SparseTensor, 12),
        ({"x": tf.RaggedTensorSpec([None, None])}, tf.RaggedTensor, None),
    ],
)
def test_zeros_of_a_feature_that_some_examples_lack(tmp_path, inputs, kind, width):
    """A model of one number is built for one, and that of a vector for as many."""
    (tmp_path / "schema.pbtxt").write_text('feature { name: "x" type: FLOAT }\n' + make_schema(y=("INT", 1)))
    data = TrainingData(Split((), 4), None, "y", None, str(tmp_path / "schema.pbtxt"))
    fed = feed(data, TrainingOptions(4, epochs=1))
    zeros, _ = replace(fed, features=fed.features.select({"x"}, inputs)).zeros()
    assert isinstance(zeros["x"], kind)
    assert tuple(zeros["x"].shape) == (4, width)
