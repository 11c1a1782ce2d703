"""Finds the models that runs of this machine have pushed, and pushes older ones again.

A rollback is recorded at the pushed model in ML Metadata: the new version, which
version it is a copy of, and when. Models that were pushed after that version are marked
as withdrawn: later runs neither compare with them nor push them again.
"""

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2

from tfx_distribute.components.launchers import locks
from tfx_distribute.components.pusher import versions
from tfx_distribute.pipelines.targets.local import runs as runs_lib
from tfx_distribute.pipelines.targets.local import stored_artifacts
from tfx_distribute.trainer_module.errors import ConfigurationError

_PUSHED_MODEL = "PushedModel"
_ROLLBACKS = "rollbacks"  # property of a pushed model: version -> {"of": version, "at": time}


@dataclass(frozen=True)
class Version:
    """A version in a folder that a model server watches.

    Attributes:
      name: Name of its folder, a number.
      is_served: True for the newest version, which servers load.
      pushed: Unix time at which it appeared.
      run: The run that pushed it; None if no run of this machine has.
      rollback_of: The version that it is a copy of; empty if a run has pushed it.
    """

    name: str
    folder: Path
    is_served: bool
    pushed: float
    run: runs_lib.Run | None = None
    rollback_of: str = ""


def list_versions(runs: Iterable[runs_lib.Run]) -> list[Version]:
    """Returns the versions in the folders that runs have pushed to, the newest first.

    `runs` are those that `list_runs` returns, the latest first.
    """
    pushed_by: dict[str, runs_lib.Run] = {}
    copies: dict[str, tuple[str, float]] = {}
    for run in reversed(list(runs)):  # the first that has pushed it; others took it from the cache
        artifact = run.find(_PUSHED_MODEL)
        folder = str(artifact.properties.get("pushed_destination", "")) if artifact else ""
        if not artifact or not folder or "://" in folder or not artifact.properties.get("pushed"):
            continue
        pushed_by.setdefault(folder, run)
        for version, rollback in json.loads(artifact.properties.get(_ROLLBACKS, "{}")).items():
            copies[os.path.join(os.path.dirname(folder), version)] = (rollback["of"], rollback["at"])
            for name in (version, rollback["of"]):
                pushed_by.setdefault(os.path.join(os.path.dirname(folder), name), run)
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
    """Pushes an older version again, as the newest one, which servers load.

    Returns the name of the new version.

    Raises:
      ConfigurationError: It is served already, no run of this machine has pushed it, or
        a run is using its folder.
      PushError: It cannot be copied; nothing has changed.
    """
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
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(root / runs_lib.METADATA_FILE)
    config.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE
    store = metadata_store.MetadataStore(config)
    folder = str(version.folder.parent)
    changed: dict[int, Any] = {}
    pushes = [pushed for pushed in store.get_artifacts_by_type(_PUSHED_MODEL) if _folder(pushed) == folder]
    chosen = next(pushed for pushed in pushes if version.name in _names(pushed))
    rollbacks = {**_read_rollbacks(chosen), new: {"of": version.name, "at": time.time()}}
    first = min(map(int, _names(chosen)))
    for pushed in pushes:
        if min(map(int, _names(pushed))) > first:
            changed |= {model.id: _marked(model, 1) for model in _models_of(store, pushed)}
    # The same model may also have been pushed later, from the cache.
    changed |= {model.id: _marked(model, 0) for model in _models_of(store, chosen)}
    chosen.custom_properties[_ROLLBACKS].string_value = json.dumps(rollbacks)
    chosen.custom_properties["pushed_version"].string_value = new
    chosen.custom_properties["pushed_destination"].string_value = os.path.join(folder, new)
    store.put_artifacts([*changed.values(), chosen])


def _folder(pushed: Any) -> str:
    """Returns the folder that a model was pushed to; empty if it was not pushed."""
    return os.path.dirname(stored_artifacts.pushed_folder(pushed))


def _names(pushed: Any) -> set[str]:
    """Returns all versions that are copies of a pushed model."""
    rollbacks = _read_rollbacks(pushed)
    newest = os.path.basename(stored_artifacts.pushed_folder(pushed))
    return {newest, *rollbacks, *(rollback["of"] for rollback in rollbacks.values())}


def _read_rollbacks(pushed: Any) -> dict[str, dict[str, Any]]:
    has_some = _ROLLBACKS in pushed.custom_properties
    return dict(json.loads(pushed.custom_properties[_ROLLBACKS].string_value)) if has_some else {}


def _marked(model: Any, withdrawn: int) -> Any:
    model.custom_properties[versions.WITHDRAWN].int_value = withdrawn
    return model


def _models_of(store: Any, pushed: Any) -> list[Any]:
    """Returns the models that a pushed model is a copy of."""
    pushers = {
        event.execution_id
        for event in store.get_events_by_artifact_ids([pushed.id])
        if event.type == metadata_store_pb2.Event.OUTPUT
    }
    inputs = [
        event.artifact_id
        for event in store.get_events_by_execution_ids(sorted(pushers))
        if event.type == metadata_store_pb2.Event.INPUT and event.path.steps and event.path.steps[0].key == "model"
    ]
    return list(store.get_artifacts_by_id(sorted(set(inputs)))) if inputs else []
