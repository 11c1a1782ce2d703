"""Finds the models that runs of this machine have pushed, and pushes older ones again.

A rollback is recorded at the pushed model in ML Metadata: the new version, which
version it is a copy of, and when. Models that were pushed after that version are marked
as withdrawn: later runs neither compare with them nor push them again.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2

from tfx_distribute.components.launchers import locks
from tfx_distribute.components.pusher import versions
from tfx_distribute.components.report.data import Artifact
from tfx_distribute.pipelines.targets.local import runs as runs_lib
from tfx_distribute.trainer_module.errors import ConfigurationError

_PUSHED_MODEL = "PushedModel"
_ROLLBACKS = "rollbacks"  # property of a pushed model: version -> {"of": version, "at": time}


@dataclass(frozen=True)
class Version:
    """A version in a folder that a model server watches; servers load the newest.

    `pushed` is the Unix time at which it appeared. `run` is None if no run of this
    machine has pushed it, and `rollback_of` is the version that it is a copy of.
    """

    name: str
    folder: Path
    is_served: bool
    pushed: float
    run: runs_lib.Run | None = None
    rollback_of: str = ""


def list_versions(runs: Iterable[runs_lib.Run]) -> list[Version]:
    """Returns the versions in the folders that runs have pushed to, the newest first.

    `runs` are those that `iterate_runs` yields, the latest first.
    """
    pushed_by: dict[str, runs_lib.Run] = {}
    copies: dict[str, tuple[str, float]] = {}
    for run, _, parent, pushed_as, rollbacks in _list_pushes(runs):
        for name in pushed_as:
            pushed_by.setdefault(os.path.join(parent, name), run)
        copies |= {os.path.join(parent, name): (rollback["of"], rollback["at"]) for name, rollback in rollbacks.items()}
    found = []
    for parent in dict.fromkeys(os.path.dirname(folder) for folder in pushed_by):
        names = versions.find_all(os.listdir(parent)) if os.path.isdir(parent) else []
        for name in names:
            folder = os.path.join(parent, name)
            rollback_of, at = copies.get(folder, ("", 0.0))
            pushed = at or os.stat(folder).st_mtime
            found.append(Version(name, Path(folder), name == names[-1], pushed, pushed_by.get(folder), rollback_of))
    return sorted(found, key=lambda version: (version.pushed, int(version.name)), reverse=True)


def find(versions_found: Sequence[Version], name: str) -> Version:
    """Returns the version of a name; none or several raise a ConfigurationError."""
    found = [version for version in versions_found if name in (version.name, str(version.folder))]
    if len(found) == 1:
        return found[0]
    if found:
        folders = ", ".join(str(version.folder) for version in found)
        raise ConfigurationError(f"VERSION: {name} is in several folders, {folders}; write the path of one")
    shown = ", ".join(version.name for version in versions_found[:5])
    raise ConfigurationError(f"VERSION: {name} does not exist; existing versions: {shown or 'none'}")


def roll_back(version: Version) -> str:
    """Pushes an older version again, as the newest one; returns its name."""
    if version.is_served:
        raise ConfigurationError(f"VERSION: {version.name} is served already")
    if version.run is None:
        raise ConfigurationError(f"VERSION: no run of this machine has pushed {version.folder}; copy it yourself")
    from tfx_distribute.components.pusher import publishing  # imports TFX

    root = version.run.root
    with locks.exclusive(str(root), "the run folder", "wait until it ends"):
        new = publishing.publish(str(version.folder), str(version.folder.parent))
        _record(root, version, new)
    return new


def _record(root: Path, version: Version, new: str) -> None:
    pushed_as: dict[int, set[str]] = {}
    models: dict[int, set[int]] = {}  # that a pushed model is a copy of
    rollbacks_of: dict[int, dict[str, Any]] = {}
    for run, pushed, parent, names, rollbacks in _list_pushes(runs_lib.iterate_runs([root])):
        if parent == str(version.folder.parent):
            pushed_as[pushed.id], rollbacks_of[pushed.id] = names, rollbacks
            inputs = [each for each in run.artifacts if pushed.node in each.used_by]
            models.setdefault(pushed.id, set()).update(each.id for each in inputs if each.type == "Model")
    chosen = next(number for number, names in pushed_as.items() if version.name in names)
    first = {number: min(map(int, names)) for number, names in pushed_as.items()}
    later = set().union(*(models[number] for number in first if first[number] > first[chosen]))
    store = runs_lib.open_store(root, metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE)
    changed = store.get_artifacts_by_id([chosen, *(later | models[chosen])])
    for artifact in changed:
        properties = artifact.custom_properties
        if artifact.id == chosen:
            rollbacks = {**rollbacks_of[chosen], new: {"of": version.name, "at": time.time()}}
            properties[_ROLLBACKS].string_value = json.dumps(rollbacks)
            properties["pushed_version"].string_value = new
            properties["pushed_destination"].string_value = str(version.folder.with_name(new))
        else:  # the same model may also have been pushed later, from the cache
            properties[versions.WITHDRAWN].int_value = int(artifact.id not in models[chosen])
    store.put_artifacts(changed)


def _list_pushes(
    runs: Iterable[runs_lib.Run],
) -> Iterator[tuple[runs_lib.Run, Artifact, str, set[str], dict[str, Any]]]:
    """Yields the runs that have pushed a model to a folder here, the first ones first.

    With each come the pushed model, which others may have taken from the cache, the
    folder, the versions in it that are copies of it, and which of them are rollbacks.
    """
    for run in reversed(list(runs)):
        artifact = run.find(_PUSHED_MODEL)
        if artifact and artifact.properties.get("pushed"):
            parent, newest = os.path.split(str(artifact.properties["pushed_destination"]))
            rollbacks = json.loads(artifact.properties.get(_ROLLBACKS, "{}"))
            names = {newest, *rollbacks, *(rollback["of"] for rollback in rollbacks.values())}
            if "://" not in parent:
                yield run, artifact, parent, names, rollbacks
