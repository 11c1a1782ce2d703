"""Compares sorted runs in files with a sort in memory."""

import numpy as np
import pytest

from tfx_distribute.components.sharder import sorted_runs


@pytest.fixture
def sorted_data(tmp_path):
    """Runs of different sizes, and all their examples in the order of keys."""
    runs, everything = [], []
    for number, count in enumerate((100, 1, 57)):
        keys = sorted_runs.draw_keys(sorted_runs.make_positions(0, number, 0, count), seed=3)
        examples = [f"{number}-{index}".encode() * (index % 5) for index in range(count)]  # some are empty
        runs.append(sorted_runs.write(str(tmp_path / f"run-{number}"), 0, keys, examples))
        everything += zip(keys.tolist(), examples, strict=True)
    assert sum(run.num_bytes for run in runs) == sum(len(example) for _, example in everything)
    return runs, [example for _, example in sorted(everything)]


@pytest.mark.parametrize(("first", "count"), [(0, 158), (0, 1), (157, 1), (30, 77), (79, 79)])
@pytest.mark.parametrize("batch_size", [1, 20, 1000])
def test_any_part_in_the_order_of_keys(sorted_data, first, count, batch_size):
    runs, everything = sorted_data
    parts = list(sorted_runs.read_merged(runs, first, count, batch_size))
    assert [example for part in parts for example in part] == everything[first : first + count]


def test_few_examples_are_held_at_a_time(sorted_data):
    runs, _ = sorted_data
    assert max(len(part) for part in sorted_runs.read_merged(runs, 0, 158, batch_size=20)) <= 20


def test_a_shard_reads_little_more_than_its_own(sorted_data, monkeypatch):
    runs, _ = sorted_data
    read, seen = sorted_runs.read, []

    def counting(*arguments):
        keys, examples = read(*arguments)
        seen.extend(examples)
        return keys, examples

    monkeypatch.setattr(sorted_runs, "read", counting)
    assert sum(map(len, sorted_runs.read_merged(runs, 20, 10, batch_size=1000))) == 10
    assert len(seen) < 20


def test_no_two_examples_have_the_same_key():
    positions = np.concatenate([sorted_runs.make_positions(split, file, 0, 1000) for split in (0, 1) for file in (0, 5)])
    assert (
        len(set(sorted_runs.draw_keys(positions, 0).tolist()))
        == len(set(sorted_runs.draw_keys(positions, 1).tolist()))
        == 4000
    )
    assert sorted_runs.split_number(sorted_runs.make_positions(3, 7, 10**9, 5)) == 3


def test_keys_are_spread_evenly():
    first_bits = sorted_runs.draw_keys(sorted_runs.make_positions(0, 0, 0, 64_000), 0) >> np.uint64(60)
    counts = np.bincount(first_bits.astype(np.int64), minlength=16)
    assert abs(counts - 4000).max() < 300
