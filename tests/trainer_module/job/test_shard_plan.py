import pytest

from tfx_distribute.trainer_module.job import shard_plan


@pytest.mark.parametrize(
    ("examples", "num_bytes", "readers", "num"),
    [
        (10**6, 10**6, 1, 16),
        (10**6, 10**6, 3, 18),
        (10**6, 10**6, 24, 24),
        (10**6, 10 << 30, 1, 80),
        (10**6, 10 << 30, 24, 96),
        (10**6, 67 * (128 << 20), 1, 80),  # 67 could only be read one at a time
        (7, 100, 3, 7),
    ],
)
def test_how_many_where_nobody_says(examples, num_bytes, readers, num):
    assert shard_plan.num_shards(examples, num_bytes, readers) == num


def test_sizes_differ_by_one_the_larger_first():
    assert shard_plan.sizes(10, 4) == [3, 3, 2, 2]
    assert shard_plan.sizes(8, 4) == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("num", "readers", "share"),
    [(8, 2, (4, 1)), (8, 8, (1, 1)), (4, 8, (1, 2)), (6, 4, (3, 2)), (1, 3, (1, 3)), (10, 3, (10, 3))],
)
def test_what_each_process_reads(num, readers, share):
    assert shard_plan.share(num, readers) == shard_plan.Share(*share)


def test_files_at_a_time_divide_all():
    assert [shard_plan.at_a_time(num, 5) for num in (1, 4, 5, 6, 12, 7)] == [1, 4, 5, 3, 4, 1]


@pytest.mark.parametrize("buffer", [1, 7, 16, 100, 1000])
@pytest.mark.parametrize(("examples", "num"), [(100, 1), (101, 4), (128, 8), (129, 8), (7, 7), (8, 7)])
def test_all_shards_have_the_same_number_of_blocks(examples, num, buffer):
    size = shard_plan.block_size(examples, num, buffer)
    assert len({-(-of_shard // size) for of_shard in shard_plan.sizes(examples, num)}) == 1
