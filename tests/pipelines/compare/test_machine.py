import os

import pytest

from tfx_distribute.pipelines.compare import machine


@pytest.mark.parametrize(("limit", "cores"), [("100000 100000", 1), ("1 100000", 1), ("max 100000", None), ("", None)])
def test_cores_of_a_container(limit, cores, tmp_path):
    (tmp_path / "cpu.max").write_text(limit)
    assert machine.count_cores(tmp_path / "cpu.max") == (cores or len(os.sched_getaffinity(0)))


def test_cores_without_a_container(tmp_path):
    assert machine.count_cores(tmp_path / "missing") == len(os.sched_getaffinity(0))
