"""Publishes a model as a new version folder that a server sees whole or not at all.

A model server loads the folder with the highest numeric name as soon as it appears. On
a file system, the model is therefore written under a name that servers ignore, synced,
and renamed. Object storage cannot rename a folder. There, and in a file system of FUSE,
which may be a mounted bucket, `saved_model.pb` is copied last, because no server loads
a model without it.
"""

import contextlib
import errno
import fcntl
import fnmatch
import os
import random
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow as tf
from absl import logging
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from tfx_distribute.components.launchers import storage
from tfx_distribute.components.pusher import versions
from tfx_distribute.trainer_module.errors import TfxDistributeError
from tfx_distribute.trainer_module.lifecycle import atomic_files

STAGING_PREFIX = ".pushing-"
_CLAIM_PREFIX = ".claim-"
LOCK_SECONDS = 600.0
_LOCK_POLL_SECONDS = 0.1
# Network file systems whose folder locks only exclude processes of the same machine: in
# Linux, they implement `flock` for files but not for folders.
_WITH_LOCAL_FOLDER_LOCKS = ("nfs", "nfs4", "cifs", "smb3")
_COPY_BYTES = 1 << 20
_SAVED_MODEL = "saved_model.pb"
_UNSUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
# What gcsfuse says of a flat bucket, also where the mount does not look like one of
# FUSE.
_CANNOT_RENAME_FOLDERS = (errno.EMFILE, errno.ENOSYS, errno.ENOTSUP)
_CLAIM_SECONDS = 2.0  # among which two pushes that want one version choose how long to wait
_NAME_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


class PushError(TfxDistributeError, RuntimeError):
    """A model cannot be pushed. Versions pushed before are unchanged."""


def publish(model: str, folder: str) -> str:
    """Copies a model into a new version folder.

    ```python
    version = publish("/runs/Trainer/model/7/Format-Serving", "/serving/digits")
    ```

    Args:
      model: Folder or address of a SavedModel.
      folder: Folder or address that a model server watches; created if it is missing.

    Returns:
      The name of the version's folder in `folder`: the time in seconds since 1970, or
      one more than the highest existing version, whichever is greater.

    Raises:
      PushError: The model cannot be read, or the folder cannot be written to.
    """
    with explaining_errors(folder):
        if not fileio.isdir(model) or not fileio.listdir(model):
            raise PushError(f"push: there is no model in {model}")
        if "://" in folder:
            return _publish_to_object_storage(model, folder)
        os.makedirs(folder, exist_ok=True)
        file_system = _find_file_system(folder, _read_mounts())
        if file_system.partition(".")[0] == "fuse":  # a mounted bucket, perhaps
            return _publish_to_object_storage(model, folder)
        with _locked(folder) as is_locked:
            if is_locked and file_system not in _WITH_LOCAL_FOLDER_LOCKS:
                _remove_leftovers(folder)
            return _publish_to_file_system(model, folder)


def find_served(model: str, folder: str) -> str | None:
    """Returns the version that servers load, if it is this model.

    A push that was repeated, or killed after its end, would only make servers load the
    same model again.

    Args:
      model: Folder or address of a SavedModel.
      folder: Folder or address that a model server watches.

    Returns:
      The name of the version's folder in `folder`; None if there is no version, or the
      highest one has other files.

    Raises:
      PushError: A file cannot be read.
    """
    with explaining_errors(folder):
        served = versions.find_newest(_list_names(folder))
        return served if served and _have_same_files(model, os.path.join(folder, served)) else None


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
    """Returns a version that is greater than all versions in a folder.

    Args:
      names: Names of the folder's entries; names that are not numbers are ignored.
      now: Seconds since 1970.

    Raises:
      PushError: The highest version has no successor.
    """
    version = max(int(now), int(versions.find_newest(names) or 0) + 1)
    if version > versions.MAX_VERSION:
        raise PushError(f"push: no version can follow {versions.MAX_VERSION}; remove it, or write another push.directory")
    return str(version)


def _list_names(folder: str) -> list[str]:
    """Returns the names of a folder's entries; none if it does not exist."""
    return [name.rstrip("/") for name in fileio.listdir(folder)] if fileio.exists(folder) else []


def _have_same_files(one: str, other: str) -> bool:
    """Returns True if two folders have the same names with the same contents."""
    sizes = _file_sizes(one)
    return sizes == _file_sizes(other) and all(
        _have_same_contents(os.path.join(one, name), os.path.join(other, name)) for name in sizes
    )


def _file_sizes(folder: str) -> dict[str, int]:
    """Returns the sizes of a folder's files in bytes, by name from the folder."""
    return {
        os.path.relpath(path, folder): tf.io.gfile.stat(path).length
        for parent, _, names in fileio.walk(folder)
        for path in (os.path.join(parent, name) for name in names)
    }


def _have_same_contents(one: str, other: str) -> bool:
    with fileio.open(one, "rb") as one_reader, fileio.open(other, "rb") as other_reader:
        while True:
            block = one_reader.read(_COPY_BYTES)
            if block != other_reader.read(_COPY_BYTES):
                return False
            if not block:
                return True


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
    try:
        atomic_files.sync(folder)
    except OSError as error:  # servers see the version already
        logging.warning("push: %s is not synced (%s); after a power failure it may be missing", folder, error)
    return version


def _rename_to_new_version(staging: str, folder: str) -> str:
    while True:
        version = next_version(os.listdir(folder), time.time())
        try:
            os.rename(staging, os.path.join(folder, version))
        except OSError as error:
            # Where folders cannot be locked, another machine may have taken the name.
            if error.errno not in _NAME_TAKEN:
                raise
        else:
            return version


def _copy_synced(source: str, target: str) -> None:
    """Copies a folder and waits until the copy is on disk."""
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


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[bool]:
    """Locks a folder against other pushes; the lock ends with the process holding it.

    Yields:
      True if the folder is locked. False if the file system has no such locks; versions
      stay unique there, since each is claimed by a rename.

    Raises:
      PushError: Another push held the lock for longer than LOCK_SECONDS.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise PushError(
                        f"push: another process has been pushing to {folder} for {LOCK_SECONDS:.0f} s; wait for it or end it"
                    ) from None
                time.sleep(_LOCK_POLL_SECONDS)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                yield False
                return
            else:
                yield True
                return
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: str) -> None:
    """Removes the files of killed pushes; call it only while the folder is locked."""
    for name in os.listdir(folder):
        if name.startswith(STAGING_PREFIX):
            logging.info("push: removing %s, which a killed push left in %s", name, folder)
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _read_mounts() -> str:
    """Returns the mounts of this process; empty where the system does not tell them."""
    try:
        return Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return ""


def _find_file_system(folder: str, mounts: str) -> str:
    """Returns the type of the file system that a folder is in; empty if it is unknown.

    One of FUSE may rename a folder file by file, and its locks may be unknown to other
    machines.

    Args:
      folder: The folder.
      mounts: The mounts of this process, as in `/proc/self/mountinfo`.
    """
    real_folder = os.path.join(os.path.realpath(folder), "")
    kinds = {}  # mount point -> type of its file system, that of the latest mount
    for line in mounts.splitlines():
        fields, _, source = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields.split()[4])
        kinds[os.path.join(point, "")] = source.split()[0]
    return kinds.get(max(filter(real_folder.startswith, kinds), key=len, default=""), "")


def _publish_to_object_storage(model: str, folder: str) -> str:
    version, claim = _wait_for_version(folder)
    target = os.path.join(folder, version)
    try:
        io_utils.copy_dir(model, target, deny_regex_patterns=[f"/{re.escape(_SAVED_MODEL)}$"])
        if fileio.exists(os.path.join(model, _SAVED_MODEL)):
            io_utils.copy_file(os.path.join(model, _SAVED_MODEL), os.path.join(target, _SAVED_MODEL))
    except BaseException:
        storage.discard(target)
        raise
    finally:
        storage.discard(claim)
    return version


def _wait_for_version(folder: str) -> tuple[str, str]:
    """Claims a version, again and again while others claim the same.

    Returns:
      The version, and the file that claims it.

    Raises:
      PushError: Others have claimed it for longer than `LOCK_SECONDS`.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        version = next_version(_list_names(folder), time.time())
        if claim := _claim(folder, version):
            return version, claim
        logging.info("push: another push claims version %s in %s; waiting", version, folder)
        if time.monotonic() > deadline:
            raise PushError(
                f"push: other pushes have claimed the versions in {folder} for {LOCK_SECONDS:.0f} s; if there are none, "
                f"remove {os.path.join(folder, _claim_name(version, '*'))}, which a killed push has left"
            )
        time.sleep(random.uniform(0, _CLAIM_SECONDS))  # noqa: S311


def _claim(folder: str, version: str) -> str | None:
    """Makes a file that claims a new version.

    Whoever sees the claim of another push gives the version up, so that of several at
    most one keeps it: object storage has no locks, but lists what has been written.

    Returns:
      The file; None if another push wants the version too, or has taken it.
    """
    own = _claim_name(version, uuid.uuid4().hex)
    claim = os.path.join(folder, own)
    io_utils.write_string_file(claim, "")
    names = _list_names(folder)
    if version not in names and fnmatch.filter(names, _claim_name(version, "*")) == [own]:
        return claim
    storage.discard(claim)
    return None


def _claim_name(version: str, push: str) -> str:
    return f"{_CLAIM_PREFIX}{version}-{push}"
