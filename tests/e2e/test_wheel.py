"""Checks the wheel that is built from the source archive."""

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import tfx_distribute

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Returns the folder that `make dist` would make."""
    # From a copy: setuptools leaves a build folder behind, and packs what an earlier
    # build left in it.
    source = tmp_path_factory.mktemp("source") / "checkout"
    folders = ("components", "pipelines", "trainer_module", "examples", "src")
    files = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
    for name in folders:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(request.config.rootpath / name, source / name, ignore=ignored)
    for name in files:
        shutil.copy(request.config.rootpath / name, source)
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source],
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(packages: Path) -> Path:
    (built,) = packages.glob("*.whl")
    return built


def test_the_source_archive_has_no_more_than_the_wheel_needs(packages):
    (archive,) = packages.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        folders = {
            member.name.split("/")[1] for member in file.getmembers() if member.isfile() and member.name.count("/") > 1
        }
    assert folders == {"components", "pipelines", "trainer_module", "examples", "src", "tfx_distribute.egg-info"}


def test_holds_the_whole_package_and_nothing_else(wheel, request):
    names = zipfile.ZipFile(wheel).namelist()
    metadata = f"tfx_distribute-{tfx_distribute.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"tfx_distribute", metadata}
    assert any(name.startswith(f"{metadata}/") and name.endswith("LICENSE") for name in names)
    root = request.config.rootpath
    files = [path for name in ("components", "pipelines", "trainer_module") for path in (root / name).rglob("*.*")]
    expected = {str(path.relative_to(root)) for path in files if path.suffix not in (".c", ".pyc", ".so")}
    assert {f"tfx_distribute/{name}" for name in (*expected, "py.typed")} - set(names) == set()
    assert any("launchers/local/_loopback" in name for name in names), "the library that is built"


def test_makes_and_checks_pipelines_outside_the_checkout(wheel, tmp_path):
    """Dependencies come from this environment, without kfp and the editable package.

    A run needs no other files: the wheel has all of the checkout.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=60)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    install = [sys.executable, "-m", "pip", "--python", tmp_path / "venv" / "bin" / "python", "install"]
    subprocess.run([*install, "--quiet", "--no-deps", "--no-index", wheel], check=True, timeout=60)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (site / "kfp.py").write_text("raise ModuleNotFoundError('only an extra has it')\n")
    (tmp_path / "work").mkdir()

    def run(program: str, *arguments: str) -> str:
        done = subprocess.run(
            [tmp_path / "venv" / "bin" / program, *arguments],
            cwd=tmp_path / "work",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    where = run("python", "-c", "import tfx_distribute.components.launchers.local.launcher as local; print(local.__file__)")
    assert where.strip().splitlines()[-1].startswith(str(site))
    run("tfx-distribute", "init", "iris")
    run("tfx-distribute", "init", "mine", "--example", "digits")
    run("tfx-distribute", "validate", "mine/pipeline.yaml")
