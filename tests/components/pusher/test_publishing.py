"""Tests that a server sees a model whole or not at all, whatever fails."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import stat
import threading
import time
from pathlib import Path

import pushing
import pytest
import tensorflow as tf
from tfx.types import standard_artifacts

from tfx_distribute.components.pusher import executor, publishing
from tfx_distribute.trainer_module.errors import ConfigurationError

SECONDS = 60.0


@pytest.fixture
def model(tmp_path):
    """A SavedModel's files; only their sizes matter here."""
    folder = tmp_path / "model" / "Format-Serving"
    (folder / "variables").mkdir(parents=True)
    (folder / "assets").mkdir()
    (folder / "saved_model.pb").write_bytes(os.urandom(9_000))
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(os.urandom(30_000))
    (folder / "variables" / "variables.index").write_bytes(os.urandom(200))
    (folder / "assets" / "vocabulary").write_bytes(b"")
    return folder


@pytest.fixture
def serving(tmp_path):
    folder = tmp_path / "serving"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def processes():
    """Starts processes that have imported TFX already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tfx_distribute.components.pusher.publishing"])
    started = []

    def start(function, *arguments):
        process = context.Process(target=function, args=tuple(map(_plain, arguments)))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        if process.is_alive():
            process.kill()
        process.join(SECONDS)


def _plain(value):
    return str(value) if isinstance(value, Path) else value


@pytest.mark.parametrize(
    ("names", "now", "version"),
    [
        ([], 1795319702.9, "1795319702"),
        (["1795319702"], 1795319702.1, "1795319703"),  # two pushes within one second
        (["1795319702", "7"], 1700000000.0, "1795319703"),  # the clock went back
        (["1", "tmp", ".pushing-5", "20b", "²", "-9"], 5.0, "5"),
        (["0099"], 5.0, "100"),  # servers read it as 99
        (["99999999999999999999"], 5.0, "5"),  # servers ignore numbers beyond int64
    ],
)
def test_versions_only_rise(names, now, version):
    assert publishing.next_version(names, now) == version


def test_each_push_is_another_whole_version_that_others_can_read(model, serving):
    versions = [publishing.publish(str(model), str(serving)) for _ in range(3)]
    assert versions == sorted(set(versions), key=int)
    assert sorted(os.listdir(serving)) == versions
    for version in versions:
        assert pushing.contents(serving / version) == pushing.contents(model)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((serving / versions[0]).stat().st_mode) == 0o777 & ~umask


def test_missing_model_is_not_pushed(tmp_path, serving):
    with pytest.raises(publishing.PushError, match="there is no model in .*nothing"):
        publishing.publish(str(tmp_path / "nothing"), str(serving))
    assert os.listdir(serving) == []


def test_kill_at_each_stage_never_shows_half_a_model(model, serving, processes):
    """A server that polls sees complete versions only."""
    whole, torn, stop = pushing.contents(model), [], threading.Event()
    publishing.publish(str(model), str(serving))

    def serve():
        last = None
        while not stop.is_set():
            newest = pushing.served(serving)
            if newest != last and pushing.contents(newest) != whole:
                torn.append(newest)
            last = newest

    server = threading.Thread(target=serve)
    server.start()
    try:
        number, code = 0, None
        while code != 0:
            number += 1
            process = processes(pushing.push_struck, model, serving, number)
            process.join(SECONDS)
            code = process.exitcode
            assert code in (0, -signal.SIGKILL)
    finally:
        stop.set()
        server.join(SECONDS)
    assert number > 10, "the push was killed at many stages"
    assert torn == []


def test_concurrent_pushes_do_not_share_a_version(model, serving, processes):
    started = [processes(publishing.publish, model, serving) for _ in range(4)]
    for process in started:
        process.join(SECONDS)
        assert process.exitcode == 0
    assert [pushing.contents(version) for version in serving.iterdir()] == [pushing.contents(model)] * 4


def cannot_rename(source, target):
    raise OSError(errno.EMFILE, "Too many open files", source)


def test_a_push_to_object_storage_that_fails_leaves_nothing(model, serving, monkeypatch):
    def fail(source, target):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(publishing.io_utils, "copy_file", fail)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        publishing._publish_to_object_storage(str(model), str(serving))
    assert os.listdir(serving) == []


def push(model, serving, archive, blessed, custom_config=None):
    """Runs the executor as TFX does."""
    trained, blessing, pushed = (
        standard_artifacts.Model(),
        standard_artifacts.ModelBlessing(),
        standard_artifacts.PushedModel(),
    )
    trained.uri, pushed.uri = str(model.parent), str(archive)
    blessing.set_int_custom_property("blessed", blessed)
    destination = {"filesystem": {"base_directory": str(serving)}}
    executor.Executor().Do(
        {"model": [trained], "model_blessing": [blessing]},
        {"pushed_model": [pushed]},
        {"push_destination": json.dumps(destination), "custom_config": json.dumps(custom_config)},
    )
    return pushed


def test_executor_records_where_the_model_is(model, serving, tmp_path):
    pushed = push(model, serving, tmp_path / "archive", blessed=1)
    version = pushing.served(serving)
    assert pushed.get_int_custom_property("pushed") == 1
    assert pushed.get_string_custom_property("pushed_destination") == str(version)
    assert pushed.get_string_custom_property("pushed_version") == version.name
    assert abs(int(version.name) - time.time()) < 60
    assert pushing.contents(tmp_path / "archive") == pushing.contents(version) == pushing.contents(model)


def test_executor_does_not_push_an_unblessed_model(model, serving, tmp_path):
    assert push(model, serving, tmp_path / "archive", blessed=0).get_int_custom_property("pushed") == 0
    assert os.listdir(serving) == []


def test_executor_does_not_push_what_is_served(model, serving, tmp_path):
    (serving / "notes").mkdir()
    first = push(model, serving, tmp_path / "first", blessed=1)
    again = push(model, serving, tmp_path / "again", blessed=1)
    versions = [each.get_string_custom_property("pushed_version") for each in (first, again)]
    assert versions[0] == versions[1] == pushing.served(serving).name
    assert again.get_int_custom_property("pushed") == 1
    assert pushing.contents(tmp_path / "again") == pushing.contents(model)

    # A later model is served: this one has to follow it.
    later = shutil.copytree(model, tmp_path / "later" / "Format-Serving")
    weights = later / "variables" / "variables.data-00000-of-00001"
    weights.write_bytes(weights.read_bytes()[::-1])
    push(later, serving, tmp_path / "third", blessed=1)
    push(model, serving, tmp_path / "fourth", blessed=1)
    assert pushing.contents(pushing.served(serving)) == pushing.contents(model)
    assert len(os.listdir(serving)) == 1 + 3


@pytest.mark.parametrize("is_bucket", [False, True])
def test_executor_keeps_the_newest_versions(model, serving, tmp_path, monkeypatch, is_bucket):
    if is_bucket:  # as gcsfuse mounts one
        monkeypatch.setattr(os, "rename", cannot_rename)
    (serving / "notes").mkdir()
    for version in ("9", "10", "200"):
        shutil.copytree(model, serving / version)
    (serving / "200" / "assets" / "vocabulary").write_bytes(b"another")
    pushed = push(model, serving, tmp_path / "archive", 1, {"keep": 2}).get_string_custom_property("pushed_version")
    assert {*os.listdir(serving)} == {"notes", "200", pushed}
    push(model, serving, tmp_path / "again", 1, {"keep": 1})
    assert {*os.listdir(serving)} == {"notes", pushed}


@pytest.mark.parametrize("keep", [0, -1, "2"])
def test_nothing_is_removed_or_pushed_with_another_number_to_keep(model, serving, tmp_path, keep):
    shutil.copytree(model, serving / "9")
    with pytest.raises(ConfigurationError, match=rf"^custom_config: keep is {keep!r}; write the number of versions"):
        push(model, serving, tmp_path / "archive", 1, {"keep": keep})
    assert os.listdir(serving) == ["9"]


def test_what_is_served_has_the_same_files(model, serving):
    assert publishing.find_served(str(model), str(serving / "missing")) is None
    version = publishing.publish(str(model), str(serving))
    assert publishing.find_served(str(model), str(serving)) == version
    (serving / version / "assets" / "more").write_bytes(b"")
    assert publishing.find_served(str(model), str(serving)) is None
    (serving / version / "assets" / "more").unlink()
    (serving / version / "assets" / "vocabulary").unlink()
    assert publishing.find_served(str(model), str(serving)) is None


def test_archive_that_cannot_be_written_fails_before_servers_see_the_model(model, serving, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(publishing.PushError, match=r"cannot copy the model to .*file/archive"):
        push(model, serving, tmp_path / "file" / "archive", blessed=1)
    assert os.listdir(serving) == []
