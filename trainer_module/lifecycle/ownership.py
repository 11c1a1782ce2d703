"""Keeps a training that nobody follows from a saved state that another run has taken.

The step of a pipeline holds the lock of a saved state; the processes that train on
other machines do not. If the step is lost, they go on until its lease has expired. A
run that begins meanwhile finds no lock, and both would write to the same files. So the
state names its owner, and whoever is not the owner any more ends before it changes what
counts.
"""

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.lifecycle import atomic_files

OWNER_FILE = "owner"


def take(folder: str, owner: str) -> str | None:
    """Takes a saved state, from whoever has it.

    ```python
    ownership.take("/states/4d2f", job.outputs.result_file)
    ```

    Args:
      folder: Folder of the state.
      owner: What only one run has, in each attempt of it: the address of its result.

    Returns:
      The owner before; None if there was none.
    """
    path = f"{folder}/{OWNER_FILE}"
    before = atomic_files.read(path)
    atomic_files.write_without_room(path, owner)
    return before


def give_back(folder: str, owner: str, before: str | None) -> None:
    """Gives a saved state back to the owner before, if it was not taken since.

    Args:
      folder: Folder of the state.
      owner: Who has taken it.
      before: What `take` returned.
    """
    path = f"{folder}/{OWNER_FILE}"
    if atomic_files.read(path) == owner:
        if before:
            atomic_files.write_without_room(path, before)
        else:
            atomic_files.remove(path)


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
