"""Tests what is said of environments that are no line of TFX."""

import importlib.metadata
import os
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.trainer_module import lines
from tfx_distribute.trainer_module.errors import ConfigurationError

THIS = lines.check()
(OTHER,) = set(lines.LINES) - {THIS}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Returns a function that puts metadata of a package before the environment's."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, version: str) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    return install


def refusal() -> str:
    with pytest.raises(ConfigurationError) as caught:
        lines.check()
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "version"),
    [("tensorflow", OTHER.tensorflow), ("tf-keras", OTHER.tensorflow), ("tfx-bsl", OTHER.tfx), ("ml-metadata", OTHER.tfx)],
)
def test_packages_of_both_lines(install, name, version):
    install(name, f"{version}.1")
    assert refusal().startswith(
        f"TFX {THIS.tfx} is installed with {name} {version}, which it cannot use; run `uv pip install '"
    )
    assert f"'{name}=={THIS.versions[name]}.*'" in refusal()


def test_all_packages_that_do_not_belong_are_named(install):
    install("tensorflow", f"{OTHER.tensorflow}.0")
    install("tensorflow-transform", f"{OTHER.tfx}.0")
    assert re.search(rf"tensorflow-transform {OTHER.tfx} and tensorflow {OTHER.tensorflow}, which", refusal())


def test_a_tfx_in_between(install):
    install("tfx", "1.17.3")
    assert refusal().startswith("TFX 1.17 is installed, and tfx-distribute runs with TFX 1.16 and 1.21")


def test_a_tensorflow_of_neither_line_is_the_users_choice(install):
    install("tensorflow", "2.18.0")
    assert lines.check() is THIS


def test_no_tfx(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    assert refusal().startswith(
        f"the package tfx is not installed for {sys.executable}; run `uv pip install .` in a checkout"
    )


def test_the_package_can_be_installed_with_the_same_versions_of_python():
    first, last = lines.FIRST_PYTHON, lines.LINES[-1].last_python
    requires = importlib.metadata.metadata("tfx-distribute")["Requires-Python"]
    assert requires.replace(" ", "") in (f">=3.{first[1]},<3.{last[1] + 1}", f"<3.{last[1] + 1},>=3.{first[1]}")


@pytest.mark.parametrize("version", [(3, 9), (3, 14)])
def test_python_that_no_line_runs_on(monkeypatch, version):
    monkeypatch.setattr(sys, "version_info", (*version, 1, "final", 0))
    assert refusal().startswith(
        f"this is Python 3.{version[1]}, and TFX 1.21 runs on Python 3.10 to 3.13; create an environ"
    )


def test_python_that_is_too_new_for_the_installed_line(install, monkeypatch):
    """The installer uv puts TFX 1.16 on Python 3.11, which TFX excludes."""
    for name, minor in lines.LINES[0].versions.items():
        install(name, f"{minor}.0")
    monkeypatch.setattr(sys, "version_info", (3, 11, 9, "final", 0))
    assert refusal() == (
        "this is Python 3.11, and TFX 1.16 runs on Python 3.10; create an environment with `uv venv --python 3.10`, and run "
        "`uv pip install .` in it, in a checkout of tfx-distribute"
    )


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_the_package_takes_only_lines_that_run_on_a_python(version):
    requirements = map(Requirement, importlib.metadata.requires("tfx-distribute"))
    (tfx,) = (
        requirement
        for requirement in requirements
        if requirement.name == "tfx" and requirement.marker.evaluate({"python_version": version})
    )
    running = [line for line in lines.LINES if tuple(map(int, version.split("."))) <= line.last_python]
    assert [line for line in lines.LINES if tfx.specifier.contains(f"{line.tfx}.0")] == running


@pytest.mark.parametrize("version", ["2.36", "2.5"])
def test_glibc_that_is_too_old_for_the_installed_line(install, monkeypatch, version):
    for name, minor in lines.LINES[-1].versions.items():
        install(name, f"{minor}.0")
    monkeypatch.setattr(os, "confstr", {"CS_GNU_LIBC_VERSION": f"glibc {version}"}.get)
    assert refusal().startswith(f"this machine has glibc {version}, and TFX 1.21 needs glibc 2.39 (Debian 13, Ubuntu 24.04)")
    monkeypatch.setattr(os, "confstr", {"CS_GNU_LIBC_VERSION": "glibc 2.41"}.get)
    assert lines.check() is lines.LINES[-1]


COMMAND = [sys.executable, "-m", "tfx_distribute.pipelines", "validate", "none.yaml"]
PYTHON_API = [sys.executable, "-c", "from tfx_distribute import pipelines; pipelines.load('none.yaml')"]
STEP = [sys.executable, *pipeline_ir.make_command(pipeline_ir.ENTRYPOINT)[1:]]


@pytest.mark.parametrize(
    ("words", "code", "before"),
    [
        (COMMAND, 2, "Error: "),
        (PYTHON_API, 1, "tfx_distribute.trainer_module.errors.ConfigurationError: "),
        (STEP, 1, "image: "),
    ],
    ids=["command", "python", "step"],
)
def test_a_mixture_is_refused_before_tensorflow_is_imported(install, tmp_path, words, code, before):
    install("tensorflow", f"{OTHER.tensorflow}.0")
    (tmp_path / "tensorflow.py").write_text("raise SystemError('imported')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1].startswith(
        f"{before}TFX {THIS.tfx} is installed with tensorflow {OTHER.tensorflow}, which it cannot use;"
    )
    assert len(done.stderr.splitlines()) == 1 or words is PYTHON_API
