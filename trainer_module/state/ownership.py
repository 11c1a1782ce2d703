"""Stops an abandoned training from writing to a saved state that another run uses.

The pipeline step holds the lock of a saved state; the processes that train on other
machines do not. If the step is lost, they continue until its lease expires. A run that
starts meanwhile finds no lock, and both would write to the same files. So a file names
the owner of the state, and a training that is no longer the owner ends before it
changes which files count.
"""

from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import TrainingError

OWNER_FILE = "owner"


def take(folder: str, owner: str) -> None:
    """Makes a run the owner of a saved state.

    `owner` identifies the run: the address of its result, which is unique to the run
    and the same in each of its attempts.
    """
    atomic_files.write(f"{folder}/{OWNER_FILE}", owner)


def check(folder: str, owner: str) -> None:
    """Raises TrainingError if a run other than `owner` owns a saved state."""
    current = atomic_files.read(f"{folder}/{OWNER_FILE}")
    if current and current != owner:
        raise TrainingError(
            f"checkpoint_dir: another run of the same training has taken the saved state {folder}, so this one ends; "
            "nothing follows it any more, or it was started twice"
        )
