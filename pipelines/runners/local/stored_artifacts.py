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

_LIVE, _DELETED = metadata_store_pb2.Artifact.LIVE, metadata_store_pb2.Artifact.DELETED
_PUSHED_MODEL, _IMPORTER = "PushedModel", "tfx.dsl.components.common.importer.Importer"  # TFX's names of types
_OUTPUTS = (metadata_store_pb2.Event.OUTPUT, metadata_store_pb2.Event.PENDING_OUTPUT)


def reconcile(store: Any, pipeline_root: str) -> None:
    """Corrects what ML Metadata says of the artifacts of a pipeline's nodes.

    An artifact is found again after the pipeline root has been moved or copied, and is
    deleted for TFX if it is gone, or is a pushed model that is not the one served.

    Args:
      store: The ML Metadata store.
      pipeline_root: Folder of the artifacts; nothing is done if it is an address.
    """
    if "://" in pipeline_root:
        return
    root = Path(pipeline_root).absolute()
    live = [artifact for artifact in store.get_artifacts() if artifact.state == _LIVE and artifact.uri]
    changed = {}
    for artifact in _of_nodes(store, [each for each in live if "://" not in each.uri]):
        path = find(root, artifact.uri)
        if not path.is_relative_to(root) or not path.exists():
            logging.info("%s is gone: no run takes it from the cache", artifact.uri)
            artifact.state = _DELETED
        elif str(path) == artifact.uri:
            continue
        artifact.uri = str(path)
        changed[artifact.id] = artifact
    for artifact in live:
        if artifact.type == _PUSHED_MODEL and artifact.state == _LIVE and not _is_served(artifact):
            artifact.state = _DELETED
            changed[artifact.id] = artifact
    store.put_artifacts(list(changed.values()))


def find(root: Path, uri: str) -> Path:
    """Returns where an artifact is, if its pipeline root has been moved or copied.

    Args:
      root: The pipeline root, an absolute path.
      uri: Where ML Metadata says that the artifact is, a path.
    """
    path = Path(uri)
    node, key, number = path.parts[-3:] if len(path.parts) > 3 else ("", "", "")
    if path.is_relative_to(root) or not number.isdecimal():
        return path
    moved = root / node / key / number
    return moved if moved.exists() else path


def pushed_folder(pushed_model: Any) -> str:
    """Returns the version folder of a pushed model; empty if it was not pushed."""
    properties = pushed_model.custom_properties
    return str(properties["pushed_destination"].string_value) if properties["pushed"].int_value else ""


def _is_served(pushed_model: Any) -> bool:
    """Returns True if a model server would load this version, or it cannot be known."""
    folder = pushed_folder(pushed_model)
    if not folder or "://" in folder:
        return True
    path = Path(folder)
    if not path.exists():
        logging.info("%s has been removed; a model that was pushed there is pushed again", folder)
        return False
    newer = [name for name in os.listdir(path.parent) if name.isdecimal() and int(name) > int(path.name)]
    if newer:
        logging.info(
            "%s is served instead of %s, which is pushed again if its model is the run's", max(newer, key=int), folder
        )
    return not newer


def _of_nodes(store: Any, artifacts: Sequence[Any]) -> Iterable[Any]:
    """Returns the artifacts that nodes have made, and not only imported."""
    events = store.get_events_by_artifact_ids([artifact.id for artifact in artifacts]) if artifacts else []
    makers = {event.artifact_id: event.execution_id for event in events if event.type in _OUTPUTS}
    executions = store.get_executions_by_id(sorted(set(makers.values()))) if makers else []
    imports = {each.id for each in executions if each.type == _IMPORTER}
    return [artifact for artifact in artifacts if makers.get(artifact.id, 0) and makers[artifact.id] not in imports]
