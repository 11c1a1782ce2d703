import shutil
import subprocess
import sys

import pytest

from tfx_distribute.trainer_module.reporting import tensorboard_logs
from tfx_distribute.trainer_module.reporting.tensorboard_logs import skipping_if_full

TRAINS = f"""
import logging, os, shutil, sys
import tensorflow as tf
from {tensorboard_logs.__name__} import TensorBoardLogs

logging.basicConfig(stream=sys.stdout, format="%(message)s")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse", run_eagerly=True)

class Disk(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 0:
            with open("small/filler", "wb") as file:
                while shutil.disk_usage("small").free:
                    file.write(bytes(4096))
                    file.flush()
        if epoch == 3:
            os.remove("small/filler")

data = tf.ones([4, 1]), tf.ones([4, 1])
history = model.fit(*data, epochs=5, validation_data=data, verbose=0, callbacks=[Disk(), TensorBoardLogs("small")])
assert len(history.history["loss"]) == 5
for folder in ("train", "validation"):
    steps = set()
    for name in os.listdir(f"small/{{folder}}"):
        events = tf.compat.v1.train.summary_iterator(f"small/{{folder}}/{{name}}")
        steps |= {{event.step for event in events if event.summary.value}}
    print(folder, sorted(steps))
"""


def test_a_full_disk_leaves_a_gap(tmp_path):
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("this machine allows no namespaces")
    (tmp_path / "small").mkdir()
    (tmp_path / "trains.py").write_text(TRAINS)
    script = f"mount -t tmpfs -o size=200k tmpfs small; {sys.executable} trains.py"
    done = subprocess.run(
        [*namespace, "bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "logs for TensorBoard are incomplete: no space is left on the disk" in done.stdout
    assert "validation [3, 4, 5]" in done.stdout, "what came after there was space again"


def test_other_errors_are_raised():
    with pytest.raises(ValueError, match="wrong"), skipping_if_full():
        raise ValueError("wrong")
