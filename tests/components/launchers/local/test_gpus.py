"""Tests how GPUs are divided among training processes."""

import pytest

from tfx_distribute.components.launchers.local import gpus as gpus_lib
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution


@pytest.mark.parametrize(
    ("variable", "gpus"), [("4, 5", ["4", "5"]), ("", []), ("-1", []), ("GPU-8932f937", ["GPU-8932f937"])]
)
def test_only_visible_gpus_are_used(monkeypatch, variable, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert gpus_lib.list_visible() == gpus


@pytest.mark.parametrize(
    ("distribution", "index", "processes", "gpus", "assigned"),
    [
        (Distribution("mirrored", accelerator_type="cpu"), 0, 1, ["0", "1"], []),
        (Distribution("mirrored"), 0, 1, ["4", "5"], ["4", "5"]),
        (Distribution("mirrored"), 0, 1, [], None),
        (Distribution("multi_worker_mirrored", num_workers=2), 1, 2, [], None),
        (Distribution("multi_worker_mirrored", num_workers=2, accelerator_count=2), 1, 2, ["4", "5", "6", "7"], ["6", "7"]),
    ],
)
def test_processes_on_one_machine_do_not_share_gpus(distribution, index, processes, gpus, assigned):
    assert gpus_lib.assign(distribution, index, processes, gpus) == assigned


@pytest.mark.parametrize(("count", "instead"), [(0, "write accelerator_count=1"), (4, "write accelerator_count=1")])
def test_too_few_gpus_for_all_processes(count, instead):
    with pytest.raises(ConfigurationError, match=f"^accelerator_count: 2 processes .* machine's 3; {instead}"):
        gpus_lib.assign(Distribution("multi_worker_mirrored", num_workers=2, accelerator_count=count), 0, 2, ["0", "1", "2"])
