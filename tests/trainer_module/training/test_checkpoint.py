import json

import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import FaultTolerance
from tfx_distribute.trainer_module.training import model_adapters
from tfx_distribute.trainer_module.training.checkpoint import STATE_FILE, Checkpoints, Position

MADE_WITH = {"global_batch_size": 4, "steps_per_epoch": 10}


class Mine(tf.keras.callbacks.Callback):
    """Remembers one thing of each kind."""

    def __init__(self):
        super().__init__()
        self.count, self.seen, self.table = 0, [], np.zeros(2)
        self.parts, self.handle = [], object()


def trained(units=3):
    model = tf.keras.Sequential([tf.keras.layers.Dense(units, input_shape=(2,))])
    model.compile(tf.keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
    made = model_adapters.make(model, "build_model")
    made.prepare((tf.zeros([1, 2]), tf.zeros([1, units])))
    made.optimizer.build(model.trainable_variables)
    return made


def step(made):
    with tf.GradientTape() as tape:
        loss = made.train_step(tf.ones([4, 2]), tf.ones([4, 3]))
    made.optimizer.minimize(loss, made.model.trainable_variables, tape=tape)


def checkpoints(folder, made, callbacks=(), made_with=None, **recovery):
    return Checkpoints(str(folder), FaultTolerance(**recovery), made_with or MADE_WITH, True, made, callbacks)


def restored(saved):
    """Finds the saved state and restores it, as training begins."""
    position = saved.find()
    saved.restore()
    return position


def variables(made):
    return [variable.numpy() for variable in (*made.model.variables, *made.optimizer.variables)]


def test_everything_comes_back(tmp_path):
    """Weights, slots and the step of the optimizer, running metrics, and what callbacks remember, as far as it is plain."""
    before, mine, handle = trained(), Mine(), object()
    for _ in range(3):
        step(before)
    mine.count, mine.seen, mine.table, mine.parts = 7, [1, 2], np.arange(3.0), [np.ones(2), np.zeros((2, 2))]
    checkpoints(tmp_path, before, [mine]).save(Position(1, 3, 13))
    after, again = trained(), Mine()
    again.handle = handle
    assert restored(checkpoints(tmp_path, after, [again])) == Position(1, 3, 13)
    for own, other in zip(variables(after), variables(before), strict=True):
        np.testing.assert_array_equal(own, other)
    assert int(after.optimizer.iterations) == 3
    assert model_adapters.as_floats(after.metrics()) == model_adapters.as_floats(before.metrics())
    assert (again.count, again.seen, again.table.tolist()) == (7, [1, 2], [0.0, 1.0, 2.0])
    assert [part.tolist() for part in again.parts] == [[1.0, 1.0], [[0.0, 0.0], [0.0, 0.0]]]
    assert again.handle is handle


def test_early_stopping_goes_on_counting(tmp_path):
    stops = tf.keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    before = trained()
    stops.set_model(before.model)
    stops.on_train_begin()
    stops.on_epoch_end(0, {"loss": 1.0})
    stops.on_epoch_end(1, {"loss": 2.0})
    checkpoints(tmp_path, before, [stops]).save(Position(2, 0, 20))
    again, after = tf.keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True), trained()
    again.set_model(after.model)
    again.on_train_begin()
    restored(checkpoints(tmp_path, after, [again]))
    again.on_epoch_end(2, {"loss": 2.0})
    assert after.model.stop_training
    np.testing.assert_array_equal(after.model.get_weights()[0], before.model.get_weights()[0])


def begun(folder, made, callbacks):
    """As training begins: with whatever is there."""
    saved = checkpoints(folder, made, callbacks)
    restored(saved)
    return saved


def test_what_a_callback_was_made_with_is_its_own(tmp_path):
    """Of this process and this run: only what has changed since is remembered."""

    class Writer(Mine):
        def __init__(self, is_chief, path):
            super().__init__()
            self.is_chief, self.path = is_chief, path

    chief = Writer(True, "/old/run")
    saved = begun(tmp_path, trained(), [tf.keras.callbacks.CSVLogger("log"), chief])  # which the others do not have
    chief.count = 3
    chief.table[0] = 5.0
    saved.save(Position(0, 10, 10))
    worker = Writer(False, "/new/run")
    after = begun(tmp_path, trained(), [worker])
    assert (worker.count, worker.table.tolist(), worker.is_chief, worker.path) == (3, [5.0, 0.0], False, "/new/run")
    again = Writer(True, "/third/run")
    after.save(Position(0, 20, 20))
    begun(tmp_path, trained(), [again])
    assert again.count == 3, "kept on, though it has not changed since"


def test_scalars_among_weights_are_kept(tmp_path):
    before, after = Mine(), Mine()
    before.parts = [np.ones(2), np.float32(3.0)]
    checkpoints(tmp_path, trained(), [before]).save(Position(0, 10, 10))
    begun(tmp_path, trained(), [after])
    assert [np.asarray(part).tolist() for part in after.parts] == [[1.0, 1.0], 3.0]
    assert f"{after.parts[1]:.1f}" == "3.0"


def test_half_written_folder_of_tensorflow_is_removed(tmp_path):
    (tmp_path / "step-10_temp").mkdir()
    (tmp_path / "step-10_temp" / "part-00000-of-00001.data").write_text("half")
    saved = checkpoints(tmp_path, trained())
    saved.save(Position(0, 20, 20))
    assert saved.remark == ""
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"step-20", "state"}


def test_only_the_last_state_is_kept(tmp_path):
    made = trained()
    saved = checkpoints(tmp_path, made)
    for number in (10, 20, 30):
        saved.save(Position(0, number, number))
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"step-30", "state"}
    assert restored(checkpoints(tmp_path, made)).step == 30


def test_save_that_fails_leaves_the_state_before_and_nothing_else(tmp_path, monkeypatch):
    made = trained()
    saved = begun(tmp_path, made, [])
    saved.save(Position(0, 10, 10))

    def no_room(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(np, "savez", no_room)
        saved.save(Position(0, 20, 20))
    assert saved.remark == "cannot save the training state, training continues: No space left on device"
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"step-10", "state"}
    assert restored(begun(tmp_path, made, [])) == Position(0, 10, 10)
    saved.save(Position(0, 30, 30))
    assert (saved.remark, restored(checkpoints(tmp_path, made)).step) == ("", 30)


def test_half_a_state_is_none(tmp_path):
    """What a process that was killed in its first save leaves; and the next save of the same step does not trip over it."""
    made = trained()
    saved = checkpoints(tmp_path, made)
    saved.save(Position(0, 10, 10))
    (tmp_path / STATE_FILE).unlink()
    (tmp_path / f"{STATE_FILE}.partial").write_text('{"checkpoint": "st')
    again = checkpoints(tmp_path, made)
    assert restored(again) == Position()
    again.save(Position(0, 10, 10))
    assert restored(checkpoints(tmp_path, made)) == Position(0, 10, 10)


def test_state_of_another_batch_is_not_taken_up(tmp_path):
    made = trained()
    checkpoints(tmp_path, made).save(Position(0, 10, 10))
    other = checkpoints(tmp_path, made, made_with={**MADE_WITH, "global_batch_size": 8})
    assert restored(other) == Position()
    assert other.remark == "starts afresh: the saved state was made with global_batch_size=4 then, 8 now"


def test_damaged_state_is_named(tmp_path):
    made = trained()
    checkpoints(tmp_path, made).save(Position(0, 10, 10))
    for part in tmp_path.glob("step-10.data*"):
        part.write_bytes(part.read_bytes()[:10])
    with pytest.raises(TrainingError, match=rf"the saved state {tmp_path}/step-10 cannot be restored .*; remove the folder"):
        restored(checkpoints(tmp_path, made))


def test_state_of_another_model_is_refused(tmp_path):
    checkpoints(tmp_path, trained()).save(Position(0, 10, 10))
    with pytest.raises(TrainingError, match="cannot be restored"):
        restored(checkpoints(tmp_path, trained(units=5)))


def test_when_it_is_time(tmp_path, monkeypatch):
    made = trained()
    by_steps = checkpoints(tmp_path, made, save_checkpoints_secs=0, save_checkpoints_steps=10)
    assert [by_steps.due(number) for number in (0, 9, 10, 11)] == [False, False, True, True]
    assert [by_steps.steps_until_due(number) for number in (0, 9)] == [10, 1]
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    by_time = checkpoints(tmp_path, made, save_checkpoints_secs=60)
    assert not by_time.due(5)
    now[0] += 60
    assert by_time.due(5)
    by_time.save(Position(0, 5, 5))
    assert not by_time.due(6)
    assert not no_folder().due(1)


def test_the_first_saves_come_sooner(tmp_path, monkeypatch):
    """After 5 s, then after twice as long each; not while a save takes more than a tenth of the time until then."""
    now, slow = [100.0], [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    saved = checkpoints(tmp_path, trained(), save_checkpoints_secs=60)
    write = tf.train.Checkpoint.write

    def write_slowly(checkpoint, path):
        now[0] += slow[0]
        return write(checkpoint, path)

    monkeypatch.setattr(tf.train.Checkpoint, "write", write_slowly)
    for number, (seconds, takes) in enumerate([(5, 0), (10, 0), (20, 5), (50, 0), (60, 0), (60, 0)], 1):
        now[0] += seconds - 1
        assert not saved.due(number), number
        now[0] += 1
        assert saved.due(number), number
        slow[0] = takes
        saved.save(Position(0, number, number))


def no_folder():
    return Checkpoints("", FaultTolerance(save_checkpoints_steps=1), MADE_WITH, True, trained(), [])


def test_nothing_is_saved_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved = no_folder()
    saved.save(Position(0, 1, 1))
    assert restored(saved) == Position()
    assert list(tmp_path.iterdir()) == []


def test_document_is_plain(tmp_path):
    mine = Mine()
    checkpoints(tmp_path, trained(), [mine]).save(Position(0, 10, 10))
    document = json.loads((tmp_path / STATE_FILE).read_text())
    assert document["position"] == {"epoch": 0, "step_of_epoch": 10, "step": 10}
    assert document["made_with"] == MADE_WITH
    assert document["callbacks"]["Mine-0"].items() >= {"count": 0, "seen": [], "parts": []}.items()
