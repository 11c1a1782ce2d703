"""Says which commands show a run: its report, its logs, TensorBoard."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.local.runs import Run


def list_commands(run: "Run") -> dict[str, str]:
    """Returns commands and files of a run: a purpose -> a command or path."""
    words = [run.id, "--root", str(run.root)]
    commands = {"report": shlex.join(["tfx-distribute", "report", *words])}
    if find_tensorboard_folders([run]):
        commands["curves"] = shlex.join(["tfx-distribute", "runs", "tensorboard", *words])
    if run.logs:
        commands["log"] = str(run.logs / "run.log")
    return commands


def find_tensorboard_folders(runs: "Sequence[Run]") -> dict[str, str]:
    """Returns the folders with TensorBoard's logs: a name for each -> its path."""
    folders = {}
    for run in runs:
        prefix = f"{run.id}/" if len(runs) > 1 else ""
        for type_name, suffix in (("ModelRun", ""), ("TunerResults", "/logs")):
            artifact = run.find(type_name)
            if artifact and not artifact.is_missing:
                folders[f"{prefix}{artifact.node}"] = f"{artifact.uri}{suffix}"
    return folders


def make_tensorboard_arguments(folders: dict[str, str]) -> list[str]:
    """Returns the options of TensorBoard that show some folders under their names."""
    if len(folders) == 1:
        return ["--logdir", *folders.values()]
    return ["--logdir_spec", ",".join(f"{name}:{path}" for name, path in folders.items())]
