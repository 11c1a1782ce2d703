"""Tests that targets are found by their names."""

import importlib
from pathlib import Path

import pytest

from tfx_distribute.pipelines.targets import target as target_lib


@pytest.mark.parametrize("name", target_lib.TARGETS)
def test_each_target_is_registered_under_its_name(name):
    target = target_lib.get(name)
    assert target.name == name
    module = importlib.import_module(f"tfx_distribute.pipelines.targets.{name}.settings")
    fields = getattr(module, f"{name.capitalize()}Settings").model_fields
    assert set(target.setting_options) <= set(fields)
    assert (Path(target_lib.__file__).parent / name / "settings.py").is_file()
