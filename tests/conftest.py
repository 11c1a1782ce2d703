"""Defines fixtures that all tests share.

Digits as examples, fork servers, a training cluster, and the command line.
"""

import contextlib
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
# oneDNN compiles kernels in each process, which takes longer than it saves. Both sides
# of a comparison have the same.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

# Some tests check that nothing is left in the temporary folder, so each parallel test
# process has its own.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests-")

import forked
import importers
import pytest
import yaml
from training import TrainingCluster, digits_cluster, write_digits

from tfx_distribute.trainer_module import garbage_collection
from tfx_distribute.trainer_module.job.training_job import TrainingData

# They have fixtures of their own, without TFX, and set TensorFlow's environment.
collect_ignore = ["gpu"]

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = REPOSITORY / "examples"
# First words of the commands that import TFX, TFMA or TFDV.
HEAVY_COMMANDS = (("compare",), ("compile",), ("models", "rollback"), ("report",), ("run",), ("runs", "show"), ("schema",))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Returns scikit-learn's digits as TFRecords."""
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def importers_folder() -> Path:
    """Returns the folder of the processes that have imported modules."""
    return Path(os.environ["IMPORTERS"])


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory, importers_folder: Path) -> Iterator[object]:
    """Returns a fork server for all trainings, so that TensorFlow is imported once."""
    yield from start_fork_server(tmp_path_factory.mktemp("fork-server"), importers_folder, keras_version=2)


@pytest.fixture(scope="session")
def keras_3_server(tmp_path_factory: pytest.TempPathFactory, importers_folder: Path) -> Iterator[object]:
    """Returns a fork server for all trainings of Keras 3 models."""
    yield from start_fork_server(tmp_path_factory.mktemp("fork-server"), importers_folder, keras_version=3)


@pytest.fixture
def own_fork_server(tmp_path: Path, importers_folder: Path) -> Iterator[object]:
    """Returns a fork server for one test, with the environment at its start."""
    yield from start_fork_server(tmp_path, importers_folder, keras_version=2)


def start_fork_server(folder: Path, importers_folder: Path, keras_version: int) -> Iterator[object]:
    """Yields a fork server that is itself a fork."""
    from tfx_distribute.components import fork_client
    from tfx_distribute.components.launchers.local.fork_client import ForkServer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fork_client, "subprocess", forked.subprocess_for_fork_servers(importers_folder))
        server = ForkServer(folder / "log", keras_version)
    with server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path, digits: TrainingData, fork_server: object) -> TrainingCluster:
    """Returns a training cluster on the digits with the example's model."""
    return digits_cluster(tmp_path, digits, fork_server)


@pytest.fixture
def exporting(cluster: TrainingCluster) -> None:
    """Lets the test's trainings export their models."""
    cluster.exporting()


@dataclass(frozen=True)
class Finished:
    """The result of a command line."""

    code: int
    output: str


@pytest.fixture(scope="session", name="forked")
def forked_processes(importers_folder: Path) -> forked.ForkedProcesses:
    """Returns what starts processes as forks of one that has imported TFX."""
    return forked.ForkedProcesses(importers_folder)


@pytest.fixture(scope="session")
def forked_trainings(importers_folder: Path) -> forked.ForkedProcesses:
    """Returns what forks training processes from one that has imported TensorFlow."""
    return forked.ForkedProcesses(importers_folder, forked.TENSORFLOW)


@pytest.fixture(name="command")
def make_command(tmp_path: Path, importers_folder: Path) -> Callable[..., Finished]:
    """Returns a function that runs `tfx-distribute` in a process.

    It runs in a folder outside the repository, and fails if a temporary file is left.
    A command that imports TFX is forked from a process that has done so, unless the
    caller wants a `new_process`.
    """

    def run(*arguments: str | Path, timeout: float = 280, new_process: bool = False) -> Finished:
        words = ["-m", "tfx_distribute.pipelines", *map(str, arguments)]
        with tempfile.TemporaryDirectory(prefix="command-") as temporary, tempfile.TemporaryFile() as output:
            environment = {**os.environ, "TMPDIR": temporary}
            if new_process or not any(arguments[: len(first)] == first for first in HEAVY_COMMANDS):
                process = subprocess.Popen(
                    [sys.executable, *words], cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT
                )
            else:
                process = forked.ForkedProcesses(importers_folder).start(words, environment, tmp_path, output)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
                process.wait()
            output.seek(0)
            text = output.read().decode()
            assert os.listdir(temporary) == [], text
        return Finished(code, text)

    return run


def pytest_configure(config: pytest.Config) -> None:
    """Lets the main process keep the processes that have imported modules."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="importers-", ignore_cleanup_errors=True))
        stack.enter_context(importers.Importers(Path(folder)))
        os.environ["IMPORTERS"] = folder  # parallel test processes inherit it
        config.add_cleanup(stack.pop_all().close)


def pytest_unconfigure() -> None:
    """Removes the temporary folder of a test process."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keeps the garbage collector from looking through what the tests import."""
    with garbage_collection.paused():
        yield


@pytest.hookimpl(trylast=True)  # when `-m` has selected them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest tests first, so that none of them ends last."""

    def length(item: pytest.Item) -> tuple[float, bool]:
        marker = item.get_closest_marker("timeout")
        return max(marker.args[0], 300) if marker else 300, bool(item.get_closest_marker("e2e"))

    if not any(item.get_closest_marker("cluster") for item in items):  # those have an order of their own
        items.sort(key=length, reverse=True)


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
