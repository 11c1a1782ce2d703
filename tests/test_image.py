"""Tests what the Dockerfile installs, as far as its files tell."""

import re
from pathlib import Path

import pytest
from tfx_lines import LINES

from tfx_distribute.trainer_module import tpu_library

ROOT = Path(__file__).resolve().parents[1]


def requirements(line: str, name: str) -> dict[str, str]:
    """Returns the pinned packages of a file of a line -> their versions."""
    text = (ROOT / "lines" / line / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;\n]+)(?: \\| *$)", text, flags=re.MULTILINE))


def test_the_driver_of_googles_nodes_is_found():
    final_stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    (value,) = re.findall(r"LD_LIBRARY_PATH=([^$ ]+)", final_stage)
    assert value == "/usr/local/nvidia/lib64"


def test_steps_leave_the_driver_of_tpus_to_training_processes():
    final_stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert all(f" {name}={value} " in final_stage for name, value in tpu_library.NOT_LOADED.items())


@pytest.mark.parametrize("line", LINES)
def test_tensorflow_for_tpus_takes_the_place_of_the_same_version(line):
    """Its other requirements are those of tensorflow-cpu, so that the lock has them."""
    locked = requirements(line, "image-cpu.lock")["tensorflow-cpu"]
    for_tpus = requirements(line, "tpu.txt")
    if line == "1.16":
        # The wheel tensorflow_tpu-2.16.2 requires this version of libtpu.
        assert for_tpus == {"tensorflow-tpu": locked, "libtpu": "2.16.0rc0"}
    else:
        assert not for_tpus, "no version of tensorflow-tpu is TensorFlow 2.21"
        assert "TensorFlow 2.21 for TPUs" in (ROOT / "lines" / line / "tpu.txt").read_text()
