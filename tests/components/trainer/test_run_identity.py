"""Tests which changes give a run another saved state, and who owns it."""

import importlib.metadata
import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf
from tfx.types import artifact_utils, standard_artifacts

from tfx_distribute.components.launchers import locks
from tfx_distribute.components.trainer import run_identity
from tfx_distribute.components.trainer.staging import Staged
from tfx_distribute.trainer_module.data import shard_manifest
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    InputOptions,
    Outputs,
    Split,
    TrainingData,
    TrainingJob,
    TrainingOptions,
    UserModule,
)
from tfx_distribute.trainer_module.state.saved_step import BEST_FILE, STATE_FILE
from tfx_distribute.trainer_module.state.state_folder import OWNER_FILE
from tfx_distribute.trainer_module.user_code.fingerprint import environment


@pytest.fixture
def job(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model.py").write_text("a = 1")
    data = TrainingData(Split((f"{tmp_path}/a",), 10), None, "y", f"{tmp_path}/Transform/1", None)
    return TrainingJob(
        module=UserModule("model.build_model", (str(tmp_path / "code"),)),
        data=data,
        distribution=Distribution(),
        training_options=TrainingOptions(32, epochs=1),
        outputs=Outputs("m", "r", "f"),
        hparams={"units": 3},
    )


def shards(folder, **checksums):
    """Writes a manifest of splits with one shard each; returns the artifact."""
    made = standard_artifacts.Examples()
    made.uri = str(folder)
    made.split_names = artifact_utils.encode_split_names(list(checksums))
    splits = {
        name: shard_manifest.SplitEntry(10, (shard_manifest.ShardEntry(f"Split-{name}/a", 10, 100, checksum),))
        for name, checksum in checksums.items()
    }
    folder.mkdir()
    shard_manifest.write(shard_manifest.Manifest("schema", splits), made.uri)
    return made


def reading(job, folder, train, evaluation=None):
    """Returns the job with the shards of these splits."""
    train, evaluation = (name and Split((f"{folder}/Split-{name}/a",), 10) for name in (train, evaluation))
    return replace(job, data=replace(job.data, train=train, eval=evaluation))


def fingerprint(job, examples=(), told=None, addresses=None):
    staged = Staged({"examples": list(examples)}, {}, addresses or {})
    return run_identity.fingerprint_inputs(job, staged, told)


def changed(one, other):
    return [name for name in one if one[name] != other[name]]


def test_changed_parts_are_named(job, tmp_path):
    parts = fingerprint(job)
    assert changed(parts, fingerprint(replace(job, hparams={"units": 4}))) == ["hparams"]
    longer = replace(job, training_options=TrainingOptions(32, epochs=2))
    assert changed(parts, fingerprint(longer)) == ["parameters"]
    mixed = replace(job, input_options=InputOptions(shuffle_buffer_size=5))
    assert changed(parts, fingerprint(mixed)) == ["parameters"]
    other = replace(job, data=replace(job.data, train=Split((f"{tmp_path}/b",), 10)))
    assert changed(parts, fingerprint(other)) == ["data"]
    assert changed(parts, fingerprint(job, told="told")) == ["module"]
    (tmp_path / "code" / "helper.py").write_text("b = 1")
    assert changed(parts, fingerprint(job)) == ["module"]


def test_other_packages_and_files_beside_the_module_are_known(job, tmp_path, monkeypatch):
    parts = fingerprint(job)
    (tmp_path / "code" / "vocabulary.txt").write_text("a\n")
    beside = fingerprint(job)
    assert changed(parts, beside) == ["module"]
    version = importlib.metadata.version
    newer = lambda name: f"{version(name)}.1" if name == "tensorflow" else version(name)  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "version", newer)
    assert changed(beside, fingerprint(job)) == ["environment"]


def test_machines_and_speed_do_not_matter(job):
    parts = fingerprint(job)
    elsewhere = replace(job, distribution=Distribution("multi_worker_mirrored", num_workers=8))
    assert fingerprint(elsewhere) == parts
    quicker = replace(job, training_options=replace(job.training_options, steps_per_execution=10, jit_compile=True))
    assert fingerprint(quicker) == parts


def test_shards_are_identified_by_their_checksums(job, tmp_path):
    here = shards(tmp_path / "one", train="00000000")
    parts = fingerprint(reading(job, here.uri, "train"), [here])
    again = shards(tmp_path / "two", train="00000000", test="33333333")
    other = reading(job, again.uri, "train")
    other_folders = replace(other, data=replace(other.data, transform_graph=f"{tmp_path}/Transform/2"))
    assert fingerprint(other_folders, [again]) == parts, "a split that is not read does not matter"
    others = shards(tmp_path / "three", train="11111111")
    assert changed(parts, fingerprint(reading(job, others.uri, "train"), [others])) == ["data"]


def test_splits_of_the_same_shards_are_other_data(job, tmp_path):
    """As in cross-validation: each fold has as many examples."""
    folds = shards(tmp_path / "folds", a="00000000", b="11111111", c="22222222")
    read = [("a", "b"), ("b", "a"), ("a", "c"), ("a", None)]
    parts = [fingerprint(reading(job, folds.uri, train, evaluation), [folds]) for train, evaluation in read]
    assert len({part["data"] for part in parts}) == len(read)


@pytest.mark.parametrize(("noun", "name", "place"), [("training", "state.json", "settings"), ("search", "search.json", ".")])
def test_state_of_other_inputs_is_reported_and_kept(job, tmp_path, caplog, noun, name, place):
    root, parts = tmp_path / "checkpoints", fingerprint(job)
    with caplog.at_level(logging.WARNING):
        folder = run_identity.ensure_checkpoint_dir(str(root), parts, name, noun)
        (root / folder / place).mkdir(exist_ok=True)
        (root / folder / place / name).write_text("{}")
        assert run_identity.ensure_checkpoint_dir(str(root), parts, name, noun) == folder
        assert caplog.text == ""
        others = {**parts, "module": "another", "parameters": "others"}
        other = run_identity.ensure_checkpoint_dir(str(root), others, name, noun)
    assert other != folder
    message = f"the state saved in {folder} is of a {noun} that differs in module and parameters; it is kept"
    assert f"Starting from scratch: {message}" in caplog.text
    saved = json.loads((root / folder / run_identity.IDENTITY_FILE).read_text())
    assert saved == {**parts, "versions": environment()}


@pytest.mark.parametrize("noun", ["training", "search"])
def test_folder_that_cannot_be_written_to_is_named(tmp_path, noun):
    (tmp_path / "file").write_text("")
    message = rf"checkpoint_dir: the state of this {noun} cannot be kept in {tmp_path}/file/states \(.+\); let this step"
    with pytest.raises(ConfigurationError, match=message):
        run_identity.ensure_checkpoint_dir(f"{tmp_path}/file/states", {"module": "one"}, noun=noun)


def test_module_of_an_installed_package_is_known_by_its_files(job):
    module = UserModule("json.decoder.JSONDecoder")
    one = fingerprint(replace(job, module=module))
    assert one == fingerprint(replace(job, module=module))
    assert changed(one, fingerprint(replace(job, module=UserModule("textwrap.dedent")))) == ["module"]


def test_a_copy_counts_as_its_original(job):
    """A retry has its copies in another folder."""

    def fingerprint_copy(number, original):
        copy = f"/shared/a-{number}/inputs/examples-0"
        copied = replace(job, data=replace(job.data, train=Split((f"{copy}/a",), 10)))
        return fingerprint(copied, addresses={copy: original})

    parts = fingerprint_copy(1, "/s3/bucket/examples")
    assert parts == fingerprint_copy(2, "/s3/bucket/examples")
    assert changed(parts, fingerprint_copy(2, "/s3/bucket/others")) == ["data"]


@pytest.fixture
def outputs(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "state").mkdir()
    return Outputs(str(tmp_path / "model"), "", str(tmp_path / "result.json"), str(tmp_path / "state"))


def train(outputs):
    with run_identity.reserve_state(outputs):
        pass


def test_a_run_owns_its_state_and_removes_it_after_success(outputs):
    with run_identity.reserve_state(outputs):
        assert Path(outputs.checkpoint_dir, OWNER_FILE).read_text() == outputs.result_file
    assert not os.path.exists(outputs.checkpoint_dir)


def test_a_state_in_use_is_refused(outputs):
    with (
        locks.exclusive(outputs.checkpoint_dir, "the state", "wait"),
        pytest.raises(ConfigurationError, match="the saved training state .* is in use by process"),
    ):
        train(outputs)


def test_the_state_of_a_run_without_a_model_stays(outputs):
    os.rmdir(outputs.serving_model_dir)
    train(outputs)
    assert os.listdir(outputs.checkpoint_dir) == [OWNER_FILE]


def test_a_removal_that_is_interrupted_leaves_nothing_to_resume_from(outputs, monkeypatch):
    """Files that are left must not be taken for those of the next training."""

    def interrupt(path):
        raise KeyboardInterrupt

    folder = Path(outputs.checkpoint_dir, "settings")
    folder.mkdir(parents=True)
    for name in (STATE_FILE, BEST_FILE, "best-10.index"):
        (folder / name).write_text("{}")
    monkeypatch.setattr(tf.io.gfile, "rmtree", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(outputs)
    assert os.listdir(folder) == ["best-10.index"]
