"""Finds the files of a base model, and fingerprints their content."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.state.saved_step import STATE_FILE

SAVED_MODEL, CHECKPOINT, KERAS_FILE = "SavedModel", "checkpoint", "Keras file"
KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
# Of a Model artifact; TFX up to 0.25 wrote the second.
_SERVING_FOLDERS = ("Format-Serving", "serving_model_dir")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Location:
    """A base model's files.

    Attributes:
      kind: `SAVED_MODEL`, `CHECKPOINT` or `KERAS_FILE`.
      path: Folder of the SavedModel, prefix of the checkpoint, or the file.
    """

    kind: str
    path: str

    @property
    def checkpoint(self) -> str:
        """Prefix of the TensorFlow checkpoint in a SavedModel, or of the checkpoint."""
        return f"{self.path}/variables/variables" if self.kind == SAVED_MODEL else self.path

    @property
    def assets(self) -> str:
        """Folder of a SavedModel's assets."""
        return f"{self.path}/assets"


def find(path: str) -> Location:
    """Finds a base model.

    ```python
    find("serving/digits")  # Location("SavedModel", "serving/digits/1795374096")
    ```

    Args:
      path: Path or address of a SavedModel, of a Model artifact or of a folder with
        numbered versions, of which the newest counts; a Keras file; a checkpoint
        without the suffix of its files, or the folder of the saved state of a training.

    Raises:
      ConfigurationError: There is no model, or nothing that weights can be read from.
    """
    path = path.rstrip("/")
    if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
        if path.endswith(KERAS_SUFFIXES):
            return Location(KERAS_FILE, path)
        stem = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
        if stem != path and tf.io.gfile.exists(f"{stem}.index"):
            return Location(CHECKPOINT, stem)
    elif tf.io.gfile.exists(f"{path}.index"):
        return Location(CHECKPOINT, path)
    elif not tf.io.gfile.exists(path):
        raise ConfigurationError(f"base_model: there is no {path}; write the path of a model, or latest_blessed")
    else:
        found = _find_in_folder(path)
        if found:
            return found
    raise ConfigurationError(
        f"base_model: {path} is not a model; write the folder of a SavedModel or of numbered ones, a Keras file "
        f"({', '.join(KERAS_SUFFIXES)}), or a checkpoint without .index"
    )


def fingerprint(path: str) -> str:
    """Fingerprints the weights of a base model, wherever its files are.

    The index of a checkpoint has a checksum of each weight, so that large files need
    not be read. Files of Keras are read.

    Args:
      path: See `find`.

    Raises:
      ConfigurationError: There is no model.
    """
    location = find(path)
    digest = hashlib.sha256()
    for file in sorted(_list_fingerprinted(location)):
        digest.update(f"{os.path.relpath(file, location.path)}\0".encode())
        with tf.io.gfile.GFile(file, "rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()[:16]


def _find_in_folder(folder: str) -> Location | None:
    if tf.io.gfile.exists(f"{folder}/saved_model.pb"):
        return Location(SAVED_MODEL, folder)
    for name in _SERVING_FOLDERS:
        if tf.io.gfile.isdir(f"{folder}/{name}"):
            return _find_in_folder(f"{folder}/{name}")
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    versions = sorted((name for name in names if name.isdigit()), key=int, reverse=True)
    for version in versions:  # one without a model is still being copied
        if tf.io.gfile.exists(f"{folder}/{version}/saved_model.pb"):
            return Location(SAVED_MODEL, f"{folder}/{version}")
    state = atomic_files.read(f"{folder}/{STATE_FILE}")
    if state is not None:
        return Location(CHECKPOINT, f"{folder}/{json.loads(state)['checkpoint']}")
    latest = tf.train.latest_checkpoint(folder)
    if latest:
        return Location(CHECKPOINT, latest)
    keras_files = [name for name in names if name.endswith(KERAS_SUFFIXES)]
    return Location(KERAS_FILE, f"{folder}/{keras_files[0]}") if len(keras_files) == 1 else None


def _list_fingerprinted(location: Location) -> Iterator[str]:
    if location.kind == KERAS_FILE:
        yield location.path
        return
    yield f"{location.checkpoint}.index"
    if location.kind == SAVED_MODEL:
        yield f"{location.path}/saved_model.pb"
        for folder in (location.assets, f"{location.path}/assets.extra"):
            for parent, _, files in tf.io.gfile.walk(folder) if tf.io.gfile.isdir(folder) else ():
                yield from (os.path.join(parent, file) for file in files)
