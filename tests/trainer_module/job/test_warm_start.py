import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.warm_start import WarmStart, matches


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("dense", "encoder/dense/kernel", True),
        ("dense", "dense_1/kernel", False),
        ("dense", "my_dense/kernel", False),
        (r"block\d", "block3/dense/kernel", True),
        ("a|b", "b/kernel", True),
        ("encoder/dense", "encoder/dense/kernel", True),
    ],
)
def test_patterns_match_whole_parts(pattern, path, expected):
    assert matches(pattern, path) is expected


def test_first_new_name_counts():
    settings = WarmStart(rename={r"tower(\d)": r"block\1", "tower1": "other"})
    assert settings.rename_path("tower1/kernel") == "block1/kernel"
    assert settings.rename_path("tower/kernel") == "tower/kernel"


def test_settings_survive_json():
    settings = WarmStart(["a"], {"b": "c"}, {"d": "e", "f": {"g": 1}}, "skip")
    assert WarmStart.from_json(settings.to_json()) == settings
    assert WarmStart.from_json(WarmStart().to_json()) == WarmStart()
    assert not WarmStart(freeze=[]).to_json(), "a run_fn takes a base model without settings"


def test_patterns_that_are_not_valid_are_refused():
    with pytest.raises(ConfigurationError, match=r"^base_model.vocabularies: 'a\(' is not valid: missing \)"):
        WarmStart(vocabularies={"a(": "words"})
