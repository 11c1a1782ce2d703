"""Tests which versions of TFX the package takes."""

import importlib.metadata

import pytest
from packaging.requirements import Requirement
from tfx_lines import LINES


@pytest.mark.parametrize(
    ("python", "lines"), [("3.10", LINES), ("3.11", LINES[1:]), ("3.12", LINES[1:]), ("3.13", LINES[1:])]
)
def test_only_lines_that_run_on_a_python(python, lines):
    requirements = map(Requirement, importlib.metadata.requires("tfx-distribute"))
    marked = (each for each in requirements if each.name == "tfx" and each.marker.evaluate({"python_version": python}))
    assert [tuple(line for line in LINES if tfx.specifier.contains(f"{line}.0")) for tfx in marked] == [lines]
