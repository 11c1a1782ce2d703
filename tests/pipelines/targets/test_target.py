"""Tests that targets are found by their names."""

import pytest

from tfx_distribute import pipelines
from tfx_distribute.pipelines.targets import target as target_lib


@pytest.mark.parametrize("name", target_lib.TARGETS)
def test_each_target_is_registered_under_its_name(name):
    target = target_lib.get(name)
    assert target.name == name
    assert set(target.setting_options) <= set(getattr(pipelines, f"{name.capitalize()}Settings").model_fields)
