"""Tests that targets are found by their names, and by the class of their settings."""

from pathlib import Path

import pytest

from tfx_distribute.pipelines import ConfigurationError, MachineSpec, compile_pipeline, target_names
from tfx_distribute.pipelines.targets import target as target_lib


@pytest.mark.parametrize("name", target_names.TARGETS)
def test_each_target_is_registered_under_its_name(name):
    target = target_names.get(name)
    assert target.name == name
    assert (Path(target_lib.__file__).parent / name / "settings.py").is_file()


def test_the_class_of_settings_chooses_the_target():
    with pytest.raises(ConfigurationError, match="^target: MachineSpec is not one of KubeflowSettings, VertexSettings; "):
        compile_pipeline(None, MachineSpec())
