"""Publishes a model as a new version folder that a server sees whole or not at all.

A model server loads the folder with the highest numeric name as soon as it appears. On
a file system, the model is therefore written under a name that servers ignore, synced,
and renamed. Object storage cannot rename a folder, nor can gcsfuse: `saved_model.pb` is
copied last there, because no server loads a model without it.
"""

import contextlib
import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator

import tensorflow as tf
from absl import logging
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from tfx_distribute.components.launchers import storage
from tfx_distribute.components.pusher import versions
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import TfxDistributeError

STAGING_PREFIX = ".pushing-"
_COPY_BYTES = 1 << 20
_SAVED_MODEL = "saved_model.pb"
# What gcsfuse says of a flat bucket.
_CANNOT_RENAME_FOLDERS = (errno.EMFILE, errno.ENOSYS, errno.ENOTSUP)
_NAME_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


class PushError(TfxDistributeError, RuntimeError):
    """A model cannot be pushed. Versions pushed before are unchanged."""


def publish(model: str, folder: str) -> str:
    """Copies a model into a new version folder in `folder`, and returns its name.

    That is the time in seconds since 1970, or one more than the highest existing
    version, whichever is greater.
    """
    with explaining_errors(folder):
        if not fileio.isdir(model) or not fileio.listdir(model):
            raise PushError(f"push: there is no model in {model}")
        if "://" in folder:
            return _publish_to_object_storage(model, folder)
        os.makedirs(folder, exist_ok=True)
        return _publish_to_file_system(model, folder)


def find_served(model: str, folder: str) -> str | None:
    """Returns the version that servers load, if it is this model; else None.

    A push that was repeated, or killed after its end, would only make servers load the
    same model again.
    """
    with explaining_errors(folder):
        served = versions.find_newest(_list_names(folder))
        return served if served and _have_same_files(model, os.path.join(folder, served)) else None


def keep_newest(folder: str, count: int) -> None:
    """Removes all but the `count` >= 1 newest versions; only warns if it cannot."""
    for version in versions.find_all(_list_names(folder))[:-count]:
        path = os.path.join(folder, version)
        if "://" not in folder:
            staging = os.path.join(folder, f"{STAGING_PREFIX}{uuid.uuid4().hex}")
            with contextlib.suppress(OSError):  # another push was faster, or it is a mounted bucket
                os.rename(path, staging)  # servers see it whole or not at all
                path = staging
        storage.discard(path)
        logging.info("push: removed version %s of %s, of which the newest %d are kept", version, folder, count)


@contextlib.contextmanager
def explaining_errors(folder: str) -> Iterator[None]:
    """Replaces errors of the file system with a PushError that names the folder."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error)
        raise PushError(
            f"push: cannot copy the model to {folder}: {reason}. Versions pushed before are unchanged; make room or give "
            "this user access, or write another push.directory, and run the same command again"
        ) from error


def next_version(names: Iterable[str], now: float) -> str:
    """Returns a version that is greater than all versions among a folder's names.

    Names that are not numbers are ignored; `now` is in seconds since 1970.
    """
    return str(max(int(now), int(versions.find_newest(names) or 0) + 1))


def _list_names(folder: str) -> list[str]:
    return [name.rstrip("/") for name in fileio.listdir(folder)] if fileio.exists(folder) else []


def _have_same_files(one: str, other: str) -> bool:
    sizes = _file_sizes(one)
    return sizes == _file_sizes(other) and all(
        _have_same_contents(os.path.join(one, name), os.path.join(other, name)) for name in sizes
    )


def _file_sizes(folder: str) -> dict[str, int]:
    return {
        os.path.relpath(path, folder): tf.io.gfile.stat(path).length
        for parent, _, names in fileio.walk(folder)
        for path in (os.path.join(parent, name) for name in names)
    }


def _have_same_contents(one: str, other: str) -> bool:
    with fileio.open(one, "rb") as one_reader, fileio.open(other, "rb") as other_reader:
        while block := one_reader.read(_COPY_BYTES):
            if block != other_reader.read(_COPY_BYTES):
                return False
        return not other_reader.read(_COPY_BYTES)


def _publish_to_file_system(model: str, folder: str) -> str:
    staging = os.path.join(folder, f"{STAGING_PREFIX}{uuid.uuid4().hex}")
    try:
        _copy_synced(model, staging)
        version = _rename_to_new_version(staging, folder)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in _CANNOT_RENAME_FOLDERS:
            return _publish_to_object_storage(model, folder)
        raise
    atomic_files.sync(folder)
    return version


def _rename_to_new_version(staging: str, folder: str) -> str:
    while True:
        version = next_version(os.listdir(folder), time.time())
        try:
            os.rename(staging, os.path.join(folder, version))
        except OSError as error:
            # Another push may have taken the name.
            if error.errno not in _NAME_TAKEN:
                raise
        else:
            return version


def _copy_synced(source: str, target: str) -> None:
    for source_folder, _, names in fileio.walk(source):
        folder = os.path.normpath(os.path.join(target, os.path.relpath(source_folder, source)))
        os.mkdir(folder)
        for name in names:
            source_file = os.path.join(source_folder, name)
            with fileio.open(source_file, "rb") as reader, open(os.path.join(folder, name), "xb") as writer:
                shutil.copyfileobj(reader, writer, _COPY_BYTES)
                writer.flush()
                os.fsync(writer.fileno())
    for folder, _, _ in os.walk(target):
        atomic_files.sync(folder)


def _publish_to_object_storage(model: str, folder: str) -> str:
    version = next_version(_list_names(folder), time.time())
    target = os.path.join(folder, version)
    try:
        io_utils.copy_dir(model, target, deny_regex_patterns=[f"/{re.escape(_SAVED_MODEL)}$"])
        if fileio.exists(os.path.join(model, _SAVED_MODEL)):
            io_utils.copy_file(os.path.join(model, _SAVED_MODEL), os.path.join(target, _SAVED_MODEL))
    except BaseException:
        storage.discard(target)
        raise
    return version
