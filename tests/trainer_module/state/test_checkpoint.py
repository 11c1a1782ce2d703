from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import FaultTolerance
from tfx_distribute.trainer_module.keras import keras_metrics
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.state import saved_step, state_folder
from tfx_distribute.trainer_module.state.checkpoint import Checkpoints, Position

MADE_WITH = {"global_batch_size": 4, "steps_per_epoch": 10}


class Mine(tf.keras.callbacks.Callback):
    """Has one attribute of each kind."""

    def __init__(self):
        super().__init__()
        self.count, self.seen, self.table = 0, [], np.zeros(2)
        self.parts, self.handle = [], object()


def make_adapter(units=3):
    model = tf.keras.Sequential([tf.keras.layers.Dense(units, input_shape=(2,))])
    model.compile(tf.keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
    adapter = factory.make(model, "build_model")
    adapter.prepare((tf.zeros([1, 2]), tf.zeros([1, units])))
    adapter.optimizer.build(model.trainable_variables)
    return adapter


def take_step(adapter):
    with tf.GradientTape() as tape:
        loss = adapter.train_step(tf.ones([4, 2]), tf.ones([4, 3]))
    adapter.optimizer.minimize(loss, adapter.model.trainable_variables, tape=tape)


def make_checkpoints(folder, adapter, callbacks=(), made_with=None, owner="", **fault_tolerance):
    settings = FaultTolerance(**fault_tolerance), made_with or MADE_WITH
    return Checkpoints(str(folder), *settings, True, adapter, callbacks, owner)


def restore(checkpoints):
    """Finds the saved state and restores it, as at the start of training."""
    position = checkpoints.find()
    checkpoints.restore()
    return position


def kept(folder):
    """Returns the names of what all settings have saved, without their random part."""
    return {"-".join(path.name.partition(".")[0].split("-")[:2]) for path in folder.glob("*/*")}


def variables(adapter):
    return [variable.numpy() for variable in (*adapter.model.variables, *adapter.optimizer.variables)]


def test_everything_comes_back(tmp_path):
    """Weights, the optimizer's slots, metrics and plain attributes of callbacks.

    Also the metrics of the last evaluation: the next one may be epochs away.
    """
    before, mine, handle = make_adapter(), Mine(), object()
    for _ in range(3):
        take_step(before)
    mine.count, mine.seen, mine.table, mine.parts = 7, [1, 2], np.arange(3.0), [np.ones(2), np.zeros((2, 2))]
    checkpoints = make_checkpoints(tmp_path, before, [mine])
    checkpoints.val_metrics = {"val_loss": 0.25}
    checkpoints.save(Position(1, 3, 13))
    after, again = make_adapter(), Mine()
    again.handle = handle
    resumed = make_checkpoints(tmp_path, after, [again])
    assert (restore(resumed), resumed.val_metrics) == (Position(1, 3, 13), {"val_loss": 0.25})
    for restored, saved in zip(variables(after), variables(before), strict=True):
        np.testing.assert_array_equal(restored, saved)
    assert int(after.optimizer.iterations) == 3
    assert keras_metrics.as_floats(after.metrics()) == keras_metrics.as_floats(before.metrics())
    assert (again.count, again.seen, again.table.tolist()) == (7, [1, 2], [0.0, 1.0, 2.0])
    assert [part.tolist() for part in again.parts] == [[1.0, 1.0], [[0.0, 0.0], [0.0, 0.0]]]
    assert again.handle is handle


class Keras3Stopping(tf.keras.callbacks.Callback):
    """Knows after its first epoch only whether more is better, as with Keras 3."""

    def __init__(self):
        super().__init__()
        self.monitor_op, self.min_delta, self.wait = None, 0.02, 0

    def _set_monitor_op(self):
        self.monitor_op = np.less
        self.min_delta *= -1

    def on_epoch_end(self, epoch, logs=None):
        if self.monitor_op is None:
            self._set_monitor_op()
        self.wait += 1


def test_min_delta_keeps_the_sign_that_keras_3_gives_it(tmp_path):
    adapter, stopping = make_adapter(), Keras3Stopping()
    checkpoints = make_checkpoints(tmp_path, adapter, [stopping])
    checkpoints.find()
    stopping.on_epoch_end(0)
    checkpoints.save(Position(1, 0, 10))
    again = Keras3Stopping()
    restore(make_checkpoints(tmp_path, adapter, [again]))
    again.on_epoch_end(1)
    assert (again.min_delta, again.wait) == (-0.02, 2)


def test_early_stopping_goes_on_counting(tmp_path):
    stops = tf.keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    before = make_adapter()
    stops.set_model(before.model)
    stops.on_train_begin()
    stops.on_epoch_end(0, {"loss": 1.0})
    stops.on_epoch_end(1, {"loss": 2.0})
    make_checkpoints(tmp_path, before, [stops]).save(Position(2, 0, 20))
    again, after = tf.keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True), make_adapter()
    again.set_model(after.model)
    again.on_train_begin()
    restore(make_checkpoints(tmp_path, after, [again]))
    again.on_epoch_end(2, {"loss": 2.0})
    assert after.model.stop_training
    np.testing.assert_array_equal(after.model.get_weights()[0], before.model.get_weights()[0])


def begin(folder, adapter, callbacks):
    """Returns checkpoints as after the start of training, with any state restored."""
    checkpoints = make_checkpoints(folder, adapter, callbacks)
    restore(checkpoints)
    return checkpoints


def test_constructor_arguments_of_a_callback_are_not_restored(tmp_path):
    """They belong to a process and a run; only later changes are saved.

    Nor are arrays of objects.
    """

    class Writer(Mine):
        def __init__(self, is_chief, path):
            super().__init__()
            self.is_chief, self.path, self.objects = is_chief, path, None

    chief = Writer(True, "/old/run")
    checkpoints = begin(
        tmp_path, make_adapter(), [tf.keras.callbacks.CSVLogger("log"), chief]
    )  # which the others do not have
    chief.count = 3
    chief.table[0] = 5.0
    chief.objects = np.array(["a", {}], object)
    checkpoints.save(Position(0, 10, 10))
    worker = Writer(False, "/new/run")
    after = begin(tmp_path, make_adapter(), [worker])
    assert (worker.count, worker.table.tolist(), worker.is_chief, worker.path) == (3, [5.0, 0.0], False, "/new/run")
    assert worker.objects is None
    again = Writer(True, "/third/run")
    after.save(Position(0, 20, 20))
    begin(tmp_path, make_adapter(), [again])
    assert again.count == 3, "saved again, though it has not changed since it was restored"


def test_what_a_kill_in_the_first_save_leaves_is_ignored_and_removed(tmp_path):
    adapter = make_adapter()
    checkpoints = make_checkpoints(tmp_path, adapter)
    folder = Path(checkpoints._folder.path)
    (folder / "state-15-0_temp").mkdir(parents=True)
    (folder / "state-15-0_temp" / "part-00000-of-00001.data").write_text("half")
    (folder / "state.json.partial").write_text('{"checkpoint": "st')
    assert restore(checkpoints) == Position()
    checkpoints.save(Position(0, 20, 20))
    assert checkpoints.remark == ""
    assert kept(tmp_path) == {"state-20", "state"}
    assert restore(make_checkpoints(tmp_path, adapter)) == Position(0, 20, 20)


def test_save_that_fails_leaves_the_state_before_and_nothing_else(tmp_path, monkeypatch):
    adapter = make_adapter()
    checkpoints = begin(tmp_path, adapter, [])
    checkpoints.save(Position(0, 10, 10))

    def no_space(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(np, "savez", no_space)
        checkpoints.save(Position(0, 20, 20))
    assert checkpoints.remark == "cannot save the training state, training continues: No space left on device"
    assert kept(tmp_path) == {"state-10", "state"}
    assert restore(begin(tmp_path, adapter, [])) == Position(0, 10, 10)
    checkpoints.save(Position(0, 30, 30))
    assert (checkpoints.remark, restore(make_checkpoints(tmp_path, adapter)).step) == ("", 30)


@pytest.mark.parametrize("is_readable", [True, False])
def test_document_that_is_renamed_although_the_storage_reports_an_error(tmp_path, monkeypatch, is_readable):
    """As NFS does whose first answer is lost."""
    adapter = make_adapter()
    checkpoints = begin(tmp_path, adapter, [])
    checkpoints.save(Position(0, 10, 10))
    rename = tf.io.gfile.rename

    def fail(*_, **__):
        raise tf.errors.UnavailableError(None, None, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(tf.io.gfile, "rename", lambda *names, overwrite: fail(rename(*names, overwrite)))
        if not is_readable:
            patched.setattr(checkpoints._folder, "read", fail)
        checkpoints.save(Position(0, 20, 20))
    assert checkpoints.remark == "cannot save the training state, training continues: no answer"
    assert restore(begin(tmp_path, adapter, [])) == Position(0, 20, 20)
    checkpoints.save(Position(0, 30, 30))
    assert kept(tmp_path) == {"state-30", "state"}


def test_state_of_another_batch_is_kept_until_the_run_succeeds(tmp_path):
    """A mistyped number of workers does not cost what was trained before."""
    adapter, batch_of_8 = make_adapter(), {**MADE_WITH, "global_batch_size": 8}
    begin(tmp_path, adapter, []).save(Position(3, 0, 30))
    other = make_checkpoints(tmp_path, adapter, made_with=batch_of_8)
    assert (restore(other), other.val_metrics) == (Position(), {})
    message = "starts from scratch: the saved state was made with global_batch_size=4 then, 8 now; it is kept"
    assert other.remark == message
    take_step(adapter)
    for step in (10, 30):
        other.save(Position(step // 10, 0, step))
    after = make_adapter()
    assert restore(make_checkpoints(tmp_path, after)) == Position(3, 0, 30)
    assert int(after.optimizer.iterations) == 0
    assert restore(make_checkpoints(tmp_path, after, made_with=batch_of_8)) == Position(3, 0, 30)
    assert int(after.optimizer.iterations) == 1
    again = make_checkpoints(tmp_path, after)
    restore(again)
    again.save(Position(4, 0, 40))
    assert kept(tmp_path) == {"state-40", "state-30", "state"}
    assert saved_step.read(str(tmp_path)) == 70, "grows with each"


def test_a_second_save_of_a_step_keeps_the_first_until_it_is_complete(tmp_path, monkeypatch):
    """As at the end of an epoch whose last step was saved, if it is killed then."""
    adapter, after = make_adapter(), make_adapter()
    checkpoints = make_checkpoints(tmp_path, adapter)
    checkpoints.save(Position(0, 10, 10))
    adapter.optimizer.learning_rate.assign(0.01)
    with monkeypatch.context() as patched:
        patched.setattr(atomic_files, "write", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(Position(1, 0, 10))
    assert restore(make_checkpoints(tmp_path, after)) == Position(0, 10, 10)
    assert float(after.optimizer.learning_rate) == pytest.approx(0.1)
    for epoch in (1, 2):  # twice more
        checkpoints.save(Position(epoch, 0, 10))
        assert restore(make_checkpoints(tmp_path, after)) == Position(epoch, 0, 10)
    assert float(after.optimizer.learning_rate) == pytest.approx(0.01)


def raise_interrupt(*_, **__):
    raise KeyboardInterrupt


def test_a_training_that_another_run_has_replaced_writes_nothing_more(tmp_path, monkeypatch):
    """Its step is gone, but its processes on other machines are still running."""
    orphan, new = make_checkpoints(tmp_path, make_adapter(), owner="/runs/1"), make_adapter()
    state_folder.take_ownership(str(tmp_path), "/runs/1")
    orphan.save(Position(0, 10, 10))
    state_folder.take_ownership(str(tmp_path), "/runs/2")
    before = set(tmp_path.rglob("*"))
    with pytest.raises(TrainingError, match=f"^checkpoint_dir: another run of the same training has .* {tmp_path}, so this"):
        orphan.save(Position(0, 20, 20))
    assert set(tmp_path.rglob("*")) == before
    (tmp_path / state_folder.OWNER_FILE).unlink()
    with monkeypatch.context() as patched:
        patched.setattr(atomic_files, "sync", lambda path: state_folder.take_ownership(str(tmp_path), "/runs/2"))
        with pytest.raises(TrainingError, match="another run"):
            orphan.save(Position(0, 20, 20))  # it is replaced while it writes
    own = make_checkpoints(tmp_path, new, owner="/runs/2")
    assert restore(own) == Position(0, 10, 10)
    own.save(Position(0, 11, 11))
    assert not own.remark


def test_a_state_that_is_damaged_or_of_another_model_is_named(tmp_path):
    adapter = make_adapter()
    make_checkpoints(tmp_path, adapter).save(Position(0, 10, 10))
    message = r"the saved state .*/state-10-\w+ cannot be restored .*, remove the folder"
    with pytest.raises(TrainingError, match=message):
        restore(make_checkpoints(tmp_path, make_adapter(units=5)))
    for part in tmp_path.glob("*/state-10-*.data*"):
        part.write_bytes(part.read_bytes()[:10])
    with pytest.raises(TrainingError, match=message):
        restore(make_checkpoints(tmp_path, adapter))


@pytest.mark.parametrize("length", [0, 20])
def test_a_document_that_is_cut_off_is_named(tmp_path, length):
    adapter = make_adapter()
    make_checkpoints(tmp_path, adapter).save(Position(0, 10, 10))
    (document,) = tmp_path.glob("*/state.json")
    document.write_bytes(document.read_bytes()[:length])
    message = rf"{document} is cut off or damaged; .* remove the folder {document.parent} to start"
    with pytest.raises(TrainingError, match=message):
        restore(make_checkpoints(tmp_path, adapter))


def test_when_it_is_time(tmp_path, monkeypatch):
    adapter = make_adapter()
    by_steps = make_checkpoints(tmp_path, adapter, save_checkpoints_secs=0, save_checkpoints_steps=10)
    assert [by_steps.due(number) for number in (0, 9, 10, 11)] == [False, False, True, True]
    assert [by_steps.steps_until_due(number) for number in (0, 9)] == [10, 1]
    by_steps.save(Position(1, 0, 8))  # as at the end of an epoch
    assert [by_steps.due(number) for number in (8, 9, 10)] == [False, False, True]
    assert by_steps.steps_until_due(8) == 2
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    by_time = make_checkpoints(tmp_path, adapter, save_checkpoints_secs=60)
    assert not by_time.due(5)
    now[0] += 60
    assert by_time.due(5)
    by_time.save(Position(0, 5, 5))
    assert not by_time.due(6)
    assert not make_without_folder().due(1)


def make_without_folder():
    return Checkpoints("", FaultTolerance(save_checkpoints_steps=1), MADE_WITH, True, make_adapter(), [])


def test_nothing_is_saved_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoints = make_without_folder()
    checkpoints.save(Position(0, 1, 1))
    assert restore(checkpoints) == Position()
    assert list(tmp_path.iterdir()) == []
