"""Tests the files that remote training leaves, and what a retry makes of them."""

import json
import os
import shutil
import time

import pytest
from own_launcher import SshSettings
from tfx.types import standard_artifacts
from training import make_job

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import registry
from tfx_distribute.components.launchers.errors import NotFollowedError
from tfx_distribute.components.launchers.launcher import Launcher, Restarts, State
from tfx_distribute.components.launchers.sigterm import TerminatedError
from tfx_distribute.components.trainer import job_builder, places
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution, Outputs, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.liveness import lease

RESULT = TrainingResult(1, 32, 10, 1.0, {})


@pytest.fixture
def artifacts(tmp_path):
    model, run, examples = standard_artifacts.Model(), standard_artifacts.ModelRun(), standard_artifacts.Examples()
    for artifact, name in ((model, "model"), (run, "model_run"), (examples, "examples")):
        artifact.uri = str(tmp_path / "step" / name)
        os.makedirs(artifact.uri)
    (tmp_path / "step" / "examples" / "data").write_text("1")
    return {"examples": [examples]}, {"model": [model], "model_run": [run]}


class OneCall(Launcher):
    """Trains by calling a function.

    Args:
      train: The function; it is called at each start.
      phase: The state afterwards.
    """

    poll_seconds = 0.01

    def __init__(self, train, phase):
        super().__init__(None)
        self._train, self._phase = train, phase
        self.stops = []

    def request(self, training):
        self.training = training
        return {}

    def start(self, request, has_result):
        self.has_result = has_result
        self._train()
        return True

    def state(self):
        return State(self._phase)

    def stop(self, has_time):
        self.stops.append(has_time)


@pytest.fixture
def trained(monkeypatch, artifacts, tmp_path):
    """Trains with the test's own launcher, and returns what that has been given.

    `stops` has what the launcher was stopped with, each time.
    """
    settings = SshSettings("digits", training="ssh", training_dir=str(tmp_path / "shared"))
    monkeypatch.setitem(registry.LAUNCHERS, "ssh", "own_launcher:SshLauncher")
    properties = {"build_model": "model.build_model", "launcher": registry.to_json(settings)}
    inputs, outputs = artifacts

    def train(launch, phase="succeeded", trial=""):
        with places.open_place(inputs, outputs, properties, Distribution(), outputs["model"][0].uri) as place:
            model, run = (place.staged.outputs[name][0].uri for name in ("model", "model_run"))
            result_file = os.path.join(place.folder, job_builder.RESULT_FILE)
            outputs_of_job = Outputs(f"{model}/Format-Serving", run, result_file, str(tmp_path / "state"))
            launcher = OneCall(
                lambda: launch(TrainingJob.from_json(atomic_files.read(launcher.training.job_address))), phase
            )
            monkeypatch.setattr(registry, "make", lambda settings: launcher)
            try:
                assert place.launch(make_job(outputs=outputs_of_job), trial) == RESULT
            finally:
                train.stops.extend(launcher.stops)
            place.staged.copy_back()
        training = launcher.training
        return training.name, training.job_address, training.environment, launcher.has_result

    train.stops = []
    return train


def succeed(job):
    os.makedirs(job.outputs.serving_model_dir, exist_ok=True)
    atomic_files.write(os.path.join(job.outputs.serving_model_dir, "saved_model.pb"), "")
    atomic_files.write(job.outputs.result_file, RESULT.to_json())


def test_result_is_kept_for_a_retry(trained, tmp_path):
    name, address, environment, has_result = trained(succeed)
    folder = tmp_path / "shared" / name
    assert (address, has_result) == (f"{folder}/job.json", False)
    assert environment[lease.LEASE_VARIABLE] == f"{folder}/followed.json"
    assert sorted(os.listdir(folder)) == ["followed.json", "job.json", "outputs", job_builder.RESULT_FILE], (
        "no copies of inputs"
    )
    assert (tmp_path / "step" / "model" / "Format-Serving" / "saved_model.pb").exists()
    # The step failed after the training; its retry does not train again.
    name_again, _, _, has_result = trained(lambda job: None)
    assert (name_again, has_result) == (name, True)
    assert (tmp_path / "step" / "model" / "Format-Serving" / "saved_model.pb").exists()


def test_each_trial_of_a_search_has_a_name_and_a_folder(trained):
    trainings = [trained(succeed, trial=trial) for trial in "01"]
    assert len({os.path.dirname(address) for _, address, *_ in trainings}) == len({name for name, *_ in trainings}) == 2
    assert all(f"/trial-{trial}-" in address for trial, (_, address, *_) in enumerate(trainings))
    assert [has_result for *_, has_result in trainings] == [False, False]


def test_a_result_without_its_model_is_not_enough(trained, tmp_path):
    name, *_ = trained(succeed)
    shutil.rmtree(tmp_path / "shared" / name / "outputs")
    *_, has_result = trained(succeed)
    assert not has_result


def test_failed_training_leaves_no_files(trained, tmp_path):
    def fail(job):
        raise TrainingError("it failed")

    with pytest.raises(TrainingError, match="it failed"):
        trained(fail)
    assert os.listdir(tmp_path / "shared") == []


@pytest.mark.parametrize("error", [TerminatedError(), NotFollowedError("the API server does not answer")])
def test_files_of_an_interrupted_training_are_kept_for_a_retry(trained, tmp_path, error):
    """A run_fn saves its state in model_run_dir."""

    def save(job):
        atomic_files.write(os.path.join(job.outputs.model_run_dir, "backup"), "step 10")
        raise error

    def resume(job):
        assert atomic_files.read(os.path.join(job.outputs.model_run_dir, "backup")) == "step 10"
        succeed(job)

    with pytest.raises(type(error)):
        trained(save)
    (folder,) = (tmp_path / "shared").iterdir()
    assert (folder / "inputs" / "examples-0" / "data").exists(), "pods that are still running may read it"
    trained(resume)


@pytest.mark.parametrize("is_retry", [True, False])
def test_files_stay_if_a_retry_is_refused(trained, tmp_path, is_retry):
    """The training of the attempt before goes on."""

    def hang(job):
        raise NotFollowedError("the API server does not answer")

    def refuse(job):
        raise ConfigurationError("the saved state is in use by a process on another machine")

    if is_retry:
        with pytest.raises(NotFollowedError):
            trained(hang)
    with pytest.raises(ConfigurationError):
        trained(refuse)
    assert len([*(tmp_path / "shared").glob("*/inputs/examples-0/data")]) == is_retry


def test_a_process_that_fails_after_the_result_was_written(trained, tmp_path):
    def fail(job):
        succeed(job)
        raise TrainingError("a worker failed")

    with pytest.raises(TrainingError, match="a worker failed"):
        trained(fail)
    (folder,) = (tmp_path / "shared").iterdir()
    assert sorted(os.listdir(folder)) == ["followed.json", "job.json", "outputs", job_builder.RESULT_FILE]


def test_an_attempt_that_hangs_does_not_remove_what_another_uses(trained, tmp_path):
    """Its machine does not answer, so that Kubeflow starts the step on another."""

    def be_replaced_and_fail(job):
        path = os.path.join(os.path.dirname(job.outputs.result_file), "followed.json")
        lease.Lease(path).take()
        raise TrainingError("it failed")

    with pytest.raises(TrainingError, match="it failed"):
        trained(be_replaced_and_fail)
    (folder,) = (tmp_path / "shared").iterdir()
    assert sorted(os.listdir(folder)) == ["followed.json", "inputs", "job.json", "outputs"]


def test_a_chief_without_a_result(trained):
    with pytest.raises(TrainingError, match=r"succeeded, but its chief did not write .*training_result.json"):
        trained(lambda job: None)


def test_a_volume_that_the_step_may_not_write_to(trained, tmp_path):
    tmp_path.chmod(0o500)
    euid = os.geteuid()
    if euid == 0:  # as a step that Kubeflow starts: it has no capabilities
        os.seteuid(65534)
    try:
        with pytest.raises(
            ConfigurationError, match="training_dir: this step may not write to .*; have the volume's folder"
        ):
            trained(succeed)
    finally:
        os.seteuid(euid)
        tmp_path.chmod(0o700)


def test_folders_whose_lease_ended_a_day_ago_are_removed(trained, tmp_path):
    shared = tmp_path / "shared"
    for name, age in (("old-1", 2 * 24 * 3600), ("new-2", 3600)):
        (shared / name).mkdir(parents=True)
        (shared / name / "followed.json").write_text(json.dumps({"sign": "a", "time": time.time() - age}))
    (shared / "checkpoints" / "state").mkdir(parents=True)
    name, *_ = trained(succeed)
    assert sorted(os.listdir(shared)) == sorted(["checkpoints", name, "new-2"])


def test_lease_is_renewed_while_training_runs(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(timeouts, "LEASE_RENEW_SECONDS", 0.05)
    seen = set()

    def watch(job):
        path = os.path.join(os.path.dirname(job.outputs.result_file), "followed.json")
        deadline = time.monotonic() + 10
        while len(seen) < 3 and time.monotonic() < deadline:
            seen.add(atomic_files.read(path))
        succeed(job)

    trained(watch)
    assert len(seen) == 3


def test_a_training_that_another_attempt_follows_is_left_alone(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(timeouts, "LEASE_RENEW_SECONDS", 0.05)

    def be_replaced(job):
        lease.Lease(os.path.join(os.path.dirname(job.outputs.result_file), "followed.json")).take()

    with pytest.raises(NotFollowedError, match="another attempt of this step"):
        trained(be_replaced, "running")
    assert trained.stops == []
    assert [*(tmp_path / "shared").glob("*/inputs/examples-0/data")], "its processes read it"


def test_the_saved_step_is_read(trained, tmp_path, monkeypatch):
    """Restarts after which training has advanced do not add up."""
    read = []

    def make_restarts(max_restarts, read_step):
        read.append(read_step)
        return Restarts(max_restarts, read_step)

    monkeypatch.setattr(places, "Restarts", make_restarts)
    trained(succeed)
    document = {"position": {"epoch": 1, "step_of_epoch": 0, "step": 90}}
    settings = tmp_path / "state" / "settings"
    settings.mkdir(parents=True)
    for text, step in (("{", 0), (json.dumps(document), 90)):
        (settings / "state.json").write_text(text)
        assert read[0]() == step


def test_names_are_dns_labels_with_room_for_pods():
    pipeline = "1-digits-of-a-pipeline-with-a-very-long-name-indeed-and-more"
    name = places.job_name(pipeline, "s3://b/run/1/model")
    assert name == places.job_name(pipeline, "s3://b/run/1/model")
    assert name.startswith("tfx-1-digits")
    assert len(f"{name}-worker-100-0-abcde") <= 63
    assert name != places.job_name(pipeline, "s3://b/run/2/model")
