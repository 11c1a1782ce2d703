"""Makes ML Metadata agree with the folders of a run's artifacts, before the run.

People move run folders, delete old models to make room, and roll back what is served.
ML Metadata does not see that: TFX would take outputs from its cache that are of another
folder, or compare with a model that is gone.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from absl import logging
from ml_metadata.proto import metadata_store_pb2

from tfx_distribute.components.pusher import versions
from tfx_distribute.trainer_module.errors import ConfigurationError

_LIVE, _DELETED = metadata_store_pb2.Artifact.LIVE, metadata_store_pb2.Artifact.DELETED
_PUSHED_MODEL, _IMPORTER = "PushedModel", "tfx.dsl.components.common.importer.Importer"  # TFX's names of types
_OUTPUTS = (metadata_store_pb2.Event.OUTPUT, metadata_store_pb2.Event.PENDING_OUTPUT)


def reconcile(store: Any, pipeline_root: str) -> None:
    """Corrects what ML Metadata says of the artifacts of a pipeline's nodes.

    An artifact is found again after the pipeline root has been moved or copied. It is
    deleted for TFX while it is gone, or while it is a pushed model that is not served.
    Nothing is done if `pipeline_root` is an address.
    """
    if "://" in pipeline_root:
        return
    root = Path(pipeline_root).absolute()
    known = [artifact for artifact in store.get_artifacts() if artifact.state in (_LIVE, _DELETED)]
    changed = []
    for artifact in _of_nodes(store, [each for each in known if each.uri and "://" not in each.uri]):
        path = find(root, artifact.uri)
        is_here = path.is_relative_to(root) and os.path.exists(path)
        uri = str(path) if is_here else artifact.uri
        state = _LIVE if is_here and _is_served(artifact) else _DELETED
        if (uri, state) != (artifact.uri, artifact.state):
            logging.info("%s is %s", uri, "there" if state == _LIVE else "gone, or not served, and not taken from the cache")
            artifact.uri, artifact.state = uri, state
            changed.append(artifact)
    store.put_artifacts(changed)


def find(root: Path, uri: str) -> Path:
    """Returns where an artifact is, if its pipeline root has been moved or copied."""
    path = Path(uri).absolute()
    # The folder of an execution's output, or the file of a value in it.
    parts = path.parts[-4:] if path.name == "value" else path.parts[-3:]
    if path.is_relative_to(root) or len(parts) < 3 or not parts[2].isdecimal():
        return path
    moved = root.joinpath(*parts)
    return moved if os.path.exists(moved) else path


def pushed_folder(pushed_model: Any) -> str:
    """Returns the version folder of a pushed model; empty if it was not pushed."""
    properties = pushed_model.custom_properties
    return str(properties["pushed_destination"].string_value) if properties["pushed"].int_value else ""


def check_pushes(store: Any, pipeline: str, serving: str) -> None:
    """Checks that servers of another pipeline's models do not get those of this one."""
    for artifact in store.get_artifacts_by_type(_PUSHED_MODEL):
        folder = pushed_folder(artifact)
        if os.path.dirname(folder) == serving and os.path.exists(folder):
            names = [context.name for context in store.get_contexts_by_artifact(artifact.id) if context.type == "pipeline"]
            if names and pipeline not in names:
                raise ConfigurationError(
                    f"push.directory: is missing, and the pipeline {names[0]} pushes to {serving} too, whose servers would "
                    "load this model; write push.directory, or another --root"
                )


def _is_served(artifact: Any) -> bool:
    """Returns False if an artifact is a pushed model that model servers do not load.

    One that was not pushed may be pushed now: a rollback may have been taken back.
    """
    if artifact.type != _PUSHED_MODEL:
        return True
    folder = pushed_folder(artifact)
    if not folder or "://" in folder:
        return bool(folder)
    path = Path(folder)
    try:
        newest = versions.find_newest(os.listdir(path.parent))
    except FileNotFoundError:
        return False
    except OSError:  # of another user
        return True
    return os.path.exists(path) and (not path.name.isdecimal() or path.name == newest)


def _of_nodes(store: Any, artifacts: Sequence[Any]) -> Iterable[Any]:
    """Returns the artifacts that nodes have made, and not only imported."""
    events = store.get_events_by_artifact_ids([artifact.id for artifact in artifacts]) if artifacts else []
    makers = {event.artifact_id: event.execution_id for event in events if event.type in _OUTPUTS}
    executions = store.get_executions_by_id(sorted(set(makers.values()))) if makers else []
    imports = {each.id for each in executions if each.type == _IMPORTER}
    return [artifact for artifact in artifacts if makers.get(artifact.id, 0) and makers[artifact.id] not in imports]
