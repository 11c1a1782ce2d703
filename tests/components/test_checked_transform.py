"""Tests that a label which `preprocessing_fn` does not return is named."""

import pytest

from tfx_distribute.components.checked_transform import preprocessing_fn
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture
def transform(tmp_path, monkeypatch):
    """Calls the check with a module's function, whose results are given."""
    monkeypatch.syspath_prepend(tmp_path)

    def call(module, outputs, takes="inputs", **names):
        (tmp_path / f"{module}.py").write_text(f"def prepare({takes}):\n    return {outputs}\n")
        return preprocessing_fn({"x": 1}, custom_config={"preprocessing_fn": f"{module}.prepare", "names": names})

    return call


def test_what_is_returned_is_passed_on(transform):
    assert transform("returns_all", "inputs | {'y': 2}", y="trainer.label") == {"x": 1, "y": 2}
    assert transform("returns_no_mapping", "[inputs]", y="trainer.label") == [{"x": 1}]


def test_a_function_may_take_custom_config_as_in_tfx(transform):
    assert transform("takes_settings", "inputs | custom_config", takes="inputs, custom_config", x="trainer.label") == {
        "x": 1
    }


def test_a_label_that_is_not_returned_is_named(transform):
    with pytest.raises(ConfigurationError, match=r"^trainer.label: prepare returns no feature 'z'; it returns x, y$"):
        transform("returns_another", "inputs | {'y': 2}", z="trainer.label")
