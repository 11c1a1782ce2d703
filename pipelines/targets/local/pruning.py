"""Removes the files of old runs on this machine.

Runs stay in ML Metadata, which is small, with their parameters and metrics: `runs list`
and `models list` still know them.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfx_distribute.components.launchers import locks
from tfx_distribute.pipelines.targets.local import models
from tfx_distribute.pipelines.targets.local.runs import ARTIFACTS, Run, iterate_runs

# In the folder of a node: has a folder for each training that has not succeeded.
_CHECKPOINTS = ".checkpoints"
# Small: metrics, and what `models rollback` needs.
_KEPT_TYPES = ("ModelEvaluation", "ModelBlessing", "PushedModel")


@dataclass(frozen=True)
class Plan:
    """Files of old runs that nothing needs: the folders to remove, and their size.

    `runs` are those that lose files, the latest first.
    """

    runs: tuple[Run, ...]
    folders: tuple[Path, ...]
    num_bytes: int


def make_plan(root: Path, runs: Sequence[Run], keep: int) -> Plan:
    """Finds the files of old runs that neither newer runs nor model servers need.

    The latest `keep` complete runs lose nothing, nor do later ones. The run of a served
    model and the last one with a blessed model lose nothing either. `runs` are all, the
    latest first, as `iterate_runs` yields them.
    """
    latest = [run for run in runs if run.state == "complete"][:keep]
    oldest = min((run.started for run in latest), default=0.0)
    served = [version.run for version in models.list_versions(runs) if version.is_served and version.run]
    blessed = [run for run in runs if (blessing := run.find("ModelBlessing")) and blessing.properties.get("blessed") == 1]
    kept = {run.id for run in (*latest, *served, *blessed[:1])}
    kept |= {run.id for run in runs if run.started >= oldest or run.state == "running"}
    used = {artifact.uri for run in runs if run.id in kept for artifact in run.artifacts}
    losing: dict[str, Run] = {}
    folders: dict[Path, None] = {}
    artifacts = root.absolute() / ARTIFACTS
    for run in runs:
        if run.id in kept:
            continue
        unused = [run.logs.absolute()] if run.logs else []
        paths = [Path(each.uri) for each in run.artifacts if each.type not in _KEPT_TYPES and each.uri not in used]
        for folder in (*unused, *(path for path in paths if path.is_relative_to(artifacts))):
            if folder.is_dir():
                folders[folder] = None
                losing[run.id] = run
    for folder in artifacts.glob(f"*/{_CHECKPOINTS}/*"):
        if folder.is_dir() and max(file.stat().st_mtime for file in (folder, *folder.iterdir())) < oldest:
            folders[folder] = None
    files = (file for folder in folders for file in folder.rglob("*") if not file.is_dir())
    return Plan(tuple(losing.values()), tuple(folders), sum(file.lstat().st_size for file in files))


def prune(root: Path, keep: int) -> Plan:
    """Removes what `make_plan` finds; refuses while a run is using the folder."""
    with locks.exclusive(str(root), "the run folder", "wait until it ends"):
        plan = make_plan(root, list(iterate_runs([root])), keep)
        for folder in plan.folders:
            shutil.rmtree(folder)
    return plan
