"""Tests what workers of Beam do before they work."""

import time
from concurrent.futures import ThreadPoolExecutor

from tfx_distribute.components.beam import worker_process


def test_functions_are_loaded_one_at_a_time():
    """Two threads that import one package may find it half imported."""
    loading, most = set(), []

    def load(number):
        loading.add(number)
        most.append(len(loading))
        time.sleep(0.05)
        loading.remove(number)
        return number

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(worker_process.one_at_a_time(load), range(4))) == [0, 1, 2, 3]
    assert max(most) == 1
