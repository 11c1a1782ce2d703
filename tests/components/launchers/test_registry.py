"""Tests how launchers are found, their settings' document, and where training runs."""

from dataclasses import replace

import pytest
from own_launcher import SshLauncher, SshSettings

from tfx_distribute.components.launchers import registry
from tfx_distribute.components.launchers.launcher import Launcher
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution

SETTINGS = SshSettings("digits", hosts=("a", "b"), training_dir="/shared")


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Adds a launcher as if this package had it."""
    monkeypatch.setitem(registry.LAUNCHERS, "ssh", "own_launcher:SshLauncher")


@pytest.mark.parametrize("name", registry.LAUNCHERS)
def test_each_launcher_is_registered_under_its_name(name):
    launcher = registry.find(name)
    assert issubclass(launcher, Launcher)
    assert name == launcher.Settings.LAUNCHER


def test_settings_survive_json():
    assert registry.from_json(registry.to_json(SETTINGS)) == SETTINGS
    assert isinstance(registry.make(SETTINGS), SshLauncher)


def test_a_launcher_that_is_not_installed():
    with pytest.raises(ConfigurationError, match="^launcher: no package here has 'slurm'; install the one that has it"):
        registry.from_json('{"launcher": "slurm", "name": "digits"}')


def test_a_launcher_of_another_package_does_not_replace_one(tmp_path, monkeypatch):
    folder = tmp_path / "other-1.0.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text(f"[{registry.GROUP}]\nssh = a:Mine\nother = own_launcher:SshLauncher\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registry.find("ssh") is registry.find("other") is SshLauncher


@pytest.mark.parametrize(
    ("training", "distribution", "remotely"),
    [
        ("auto", Distribution("mirrored", accelerator_count=8), False),
        ("auto", Distribution("multi_worker_mirrored", num_workers=1), False),
        ("auto", Distribution("multi_worker_mirrored", num_workers=2), True),
        ("auto", Distribution("parameter_server"), True),
        ("elsewhere", Distribution(), True),
        ("step", Distribution("multi_worker_mirrored", num_workers=2), False),
    ],
)
def test_when_training_runs_remotely(training, distribution, remotely):
    settings = SETTINGS.elsewhere() if training == "elsewhere" else replace(SETTINGS, training=training)
    assert settings.runs_remotely(distribution) is remotely
