"""Checks that the built wheel runs a pipeline outside of the checkout."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import tfx_distribute

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    # From a copy: setuptools leaves a build folder behind, and packs what an earlier
    # build left in it.
    source = tmp_path_factory.mktemp("source") / "checkout"
    names = ("components", "pipelines", "trainer_module", "src", "setup.py", "pyproject.toml", "README.md", "LICENSE")
    source.mkdir()
    for path in (request.config.rootpath / name for name in names):
        if path.is_dir():
            shutil.copytree(path, source / path.name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(path, source)
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source],
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    (built,) = folder.glob("*.whl")
    return built


def test_holds_nothing_but_the_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    metadata = f"tfx_distribute-{tfx_distribute.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"tfx_distribute", metadata}
    assert any(name.startswith(f"{metadata}/") and name.endswith("LICENSE") for name in names)
    for file in (
        "py.typed",
        "pipelines/cli/main.py",
        "components/launchers/local/launcher.py",
        "trainer_module/__main__.py",
        "components/report/templates/report.css",
        "components/report/templates/report.html",
    ):
        assert f"tfx_distribute/{file}" in names


def test_runs_outside_the_checkout(wheel, tmp_path, request):
    """Dependencies come from this environment, without kfp and the editable package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=60)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (site / "kfp.py").write_text("raise ModuleNotFoundError('only an extra has it')\n")
    (tmp_path / "work").mkdir()

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [tmp_path / "venv" / "bin" / "python", *arguments],
            cwd=tmp_path / "work",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    where = run("-c", "import tfx_distribute.components.launchers.local.launcher as local; print(local.__file__)")
    assert where.strip().splitlines()[-1].startswith(str(site))
    pipeline = request.config.rootpath / "examples" / "digits" / "pipeline.yaml"
    output = run("-m", "tfx_distribute.pipelines", "run", str(pipeline), "-p", "strategy=one_device", "-p", "epochs=8")
    assert "✓ Pusher" in output
    assert (tmp_path / "work" / "runs" / "digits" / "serving").is_dir()
