"""Reserves a saved training state for one live run; removes it after success."""

import contextlib
from collections.abc import Iterator

from tfx.dsl.io import fileio

from tfx_distribute.components.launchers import locks, storage
from tfx_distribute.trainer_module.job.training_job import Outputs
from tfx_distribute.trainer_module.state import saved_step, state_folder
from tfx_distribute.trainer_module.state.saved_step import BEST_FILE, STATE_FILE


@contextlib.contextmanager
def owned(outputs: Outputs) -> Iterator[None]:
    """Reserves a job's saved state within the block, against other live runs.

    If the block succeeds and there is a model, the state is removed.
    """
    folder = outputs.checkpoint_dir
    if not folder:
        yield
        return
    advice = (
        "it trains the same module on the same data and saves its state there; wait until it ends, stop it, or write "
        "another checkpoint_dir"
    )
    with locks.exclusive(folder, "the saved training state", advice):
        storage.call(folder, lambda: state_folder.take(folder, outputs.result_file))
        yield
        if fileio.exists(outputs.serving_model_dir):
            # First what makes the other files count, as this may be interrupted.
            with contextlib.suppress(*storage.ERRORS):
                for name in (STATE_FILE, BEST_FILE):
                    for path in saved_step.find(folder, name):
                        storage.discard(path)
            storage.discard(folder)
