"""Finds the files of a base model, and fingerprints their content."""

import hashlib
from collections.abc import Iterator

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError

_KERAS_SUFFIXES = (".keras", ".weights.h5")
_CHUNK_BYTES = 1 << 20


def find(path: str) -> str:
    """Finds the Keras file, or the folder of the SavedModel, of a base model.

    `path` is that of a Keras file, a SavedModel, a Model artifact, or a folder with
    numbered SavedModels, of which the newest counts.
    """
    path = path.rstrip("/")
    if is_keras_file(path) and tf.io.gfile.exists(path):
        return path
    for folder in _list_folders(path):
        if tf.io.gfile.exists(f"{folder}/saved_model.pb"):
            return folder
    raise ConfigurationError(
        f"base_model: there is no model that can be read at {path}; write latest_blessed, the folder of a SavedModel or "
        f"of numbered ones, or a Keras file ({', '.join(_KERAS_SUFFIXES)}). To convert a checkpoint or an older file, call "
        'model.load_weights(...) and then model.save("x.keras")'
    )


def is_keras_file(path: str) -> bool:
    """Returns True for the path of a Keras file, False for that of a SavedModel."""
    return path.endswith(_KERAS_SUFFIXES)


def fingerprint(path: str) -> str:
    """Fingerprints the weights of a base model, wherever its files are.

    The index of a SavedModel has a checksum of each weight, so that large files need
    not be read. Keras files are read.
    """
    model = find(path)
    assets = f"{model}/assets"  # have the vocabularies
    names = sorted(tf.io.gfile.listdir(assets)) if tf.io.gfile.isdir(assets) else []
    files = [f"{model}/variables/variables.index", *(f"{assets}/{name}" for name in names if not name.endswith("/"))]
    digest = hashlib.sha256()
    for file in [model] if is_keras_file(model) else files:
        digest.update(f"{file.removeprefix(model)}\0".encode())
        with tf.io.gfile.GFile(file, "rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()[:16]


def _list_folders(path: str) -> Iterator[str]:
    """Yields the folders that may be that of the SavedModel."""
    if tf.io.gfile.isdir(path):
        yield path
        yield f"{path}/Format-Serving"  # of a Model artifact
        versions = [name for entry in tf.io.gfile.listdir(path) if (name := entry.rstrip("/")).isdigit()]
        for version in sorted(versions, key=int, reverse=True):  # one without a model is still being copied
            yield f"{path}/{version}"
