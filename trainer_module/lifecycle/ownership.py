"""Keeps a training that nobody follows from a saved state that another run has taken.

The step of a pipeline holds the lock of a saved state; the processes that train on
other machines do not. If the step is lost, they go on until its lease has expired. A
run that begins meanwhile finds no lock, and both would write to the same files. So the
state names its owner, and whoever is not the owner any more ends before it writes.
"""

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.lifecycle import atomic_files

OWNER_FILE = "owner"


def take(folder: str, owner: str) -> None:
    """Takes a saved state, from whoever has it.

    ```python
    ownership.take("/states/4d2f", job.outputs.result_file)
    ```

    Args:
      folder: Folder of the state.
      owner: What only one run has, in each attempt of it: the address of its result.
    """
    atomic_files.write(f"{folder}/{OWNER_FILE}", owner)


def check(folder: str, owner: str) -> None:
    """Checks that nobody else has taken a saved state; one without an owner is free.

    Args:
      folder: Folder of the state.
      owner: As in `take`.

    Raises:
      TrainingError: Another run has taken it.
    """
    current = atomic_files.read(f"{folder}/{OWNER_FILE}")
    if current and current != owner:
        raise TrainingError(
            f"checkpoint_dir: another run of the same training has taken the saved state {folder}, so this one ends; "
            "nothing follows it any more, or it was started twice"
        )
