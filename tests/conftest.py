"""Defines fixtures that all tests share.

Digits as examples, fork servers, a training cluster, and the command line.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# As in every training process: the Keras that TFX, TFT and TFMA use. TensorFlow reads
# it when it is imported.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# Some tests check that nothing is left in the temporary folder, so each parallel test
# process has its own.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests-")

import pytest
import yaml
from training import TrainingCluster, digits_cluster, write_digits

from tfx_distribute.trainer_module.job.training_job import TrainingData

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = REPOSITORY / "examples"


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Returns scikit-learn's digits as TFRecords."""
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Returns a fork server for all trainings, so that TensorFlow is imported once."""
    from tfx_distribute.components.launchers.local.fork_client import ForkServer

    with ForkServer(tmp_path_factory.mktemp("fork-server") / "log") as server:
        yield server


@pytest.fixture(scope="session")
def keras_3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Returns a fork server for all trainings of Keras 3 models."""
    from tfx_distribute.components.launchers.local.fork_client import ForkServer

    with ForkServer(tmp_path_factory.mktemp("fork-server") / "log", keras_version=3) as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path, digits: TrainingData, fork_server: object) -> TrainingCluster:
    """Returns a training cluster on the digits with the example's model."""
    return digits_cluster(tmp_path, digits, fork_server)


@dataclass(frozen=True)
class Finished:
    """The result of a command line."""

    code: int
    output: str


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Finished]:
    """Returns a function that runs `tfx-distribute` in a new process.

    It runs in a folder outside the repository, and fails if a temporary file is left.
    """

    def run(*arguments: str | Path, timeout: float = 280) -> Finished:
        with tempfile.TemporaryDirectory(prefix="command-") as temporary:
            done = subprocess.run(
                [sys.executable, "-m", "tfx_distribute.pipelines", *map(str, arguments)],
                cwd=tmp_path,
                env={**os.environ, "TMPDIR": temporary},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout,
                check=False,
            )
            assert os.listdir(temporary) == [], done.stdout
        return Finished(done.returncode, done.stdout)

    return run


def pytest_unconfigure() -> None:
    """Removes the temporary folder of a test process."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--write-expected`, which rewrites expected documents for review."""
    parser.addoption("--write-expected", action="store_true", help="rewrite tests/expected")


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


@pytest.fixture
def expected(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Returns a function that compares a document with a file in tests/expected."""

    def compare(name: str, document: object) -> None:
        path = REPOSITORY / "tests" / "expected" / f"{name}.yaml"
        text = yaml.dump(document, Dumper=_NoAliases, sort_keys=True)
        if request.config.getoption("--write-expected"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text

    return compare
