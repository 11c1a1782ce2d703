"""What a training is of: its inputs as one word, so that another try of the same finds what the one before saved."""

import hashlib
import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import tensorflow as tf
from absl import logging
from tfx import types

from tfx_distribute.trainer_module import manifest
from tfx_distribute.trainer_module.checkpoint import STATE_FILE
from tfx_distribute.trainer_module.job import Data, TrainingJob

IDENTITY_FILE = "identity.json"

# What says how training goes about it, and not what comes of it.
_NO_MATTER = ("steps_per_execution", "profile_steps", "jit_compile")


def parts(
    job: TrainingJob, data: Data, examples: list[types.Artifact], module_fingerprint: str | None = None
) -> dict[str, str]:
    """What a training is of, part by part: name -> fingerprint.

    Workers, devices and strategy are no part of it: one strategy may take up what another one saved.

    Args:
      job: The training.
      data: Its data.
      examples: The examples that it is given.
      module_fingerprint: What the pipeline knows of the module's files, beside what is found here.
    """
    schedule = {name: value for name, value in asdict(job.schedule).items() if name not in _NO_MATTER}
    order = {"shuffle_buffer_size": job.reading.shuffle_buffer_size, "cycle_length": job.reading.cycle_length}
    shards = [_checksums(artifact) for artifact in examples]
    read = asdict(data)
    # Where the bytes are known, it is no matter where they lie; nor what made them, where it makes the same.
    if shards and all(shards):
        read["train"], read["eval"] = data.train.num_examples, data.eval and data.eval.num_examples
        del read["transform_graph"], read["schema"]
    return {
        "module": _fingerprint({"function": job.module.function, "files": _module_files(job), "told": module_fingerprint}),
        "data": _fingerprint({"read": read, "shards": shards}),
        "hparams": _fingerprint(dict(job.hparams)),
        "parameters": _fingerprint({**schedule, **order}),
    }


def checkpoint_dir(root: str, identity: Mapping[str, str]) -> str:
    """The folder of a training's state; says what is different where there are only states of others."""
    folder = os.path.join(root, _fingerprint(dict(identity)))
    if not tf.io.gfile.exists(folder):
        _tell_of_others(root, identity)
        tf.io.gfile.makedirs(folder)
        file = os.path.join(folder, IDENTITY_FILE)
        with tf.io.gfile.GFile(f"{file}.partial", "w") as stream:
            stream.write(json.dumps(dict(identity), indent=1))
        tf.io.gfile.rename(f"{file}.partial", file, overwrite=True)
    return folder


def _tell_of_others(root: str, identity: Mapping[str, str]) -> None:
    for name in tf.io.gfile.listdir(root) if tf.io.gfile.exists(root) else ():
        file = os.path.join(root, name, IDENTITY_FILE)
        if tf.io.gfile.exists(file) and tf.io.gfile.exists(os.path.join(root, name, STATE_FILE)):
            with tf.io.gfile.GFile(file) as stream:
                other = json.loads(stream.read())
            changed = " and ".join(part for part in identity if other.get(part) != identity[part])
            logging.warning(
                "Starts afresh: a saved state is there, but of another %s; it stays in %s", changed, os.path.dirname(file)
            )


def _module_files(job: TrainingJob) -> dict[str, str]:
    """The user's Python files: those beside the module, as TFX packages them; or all of an installed package."""
    if job.module.search_path:
        files = [os.path.join(folder, name) for folder in job.module.search_path for name in os.listdir(folder)]
    else:
        package = importlib.util.find_spec(job.module.function.partition(".")[0])
        folders = list(package.submodule_search_locations or ()) if package else []
        files = [os.path.join(where, name) for folder in folders for where, _, names in os.walk(folder) for name in names]
        if package and package.origin and not folders:
            files = [package.origin]
    own = sorted(file for file in files if file.endswith(".py"))
    return {os.path.relpath(file, os.path.commonpath(own)): _content(file) for file in own}


def _content(file: str) -> str:
    with open(file, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def _checksums(artifact: types.Artifact) -> Any:
    """What the manifest of shards says of their bytes; None where there is none."""
    found = manifest.read(artifact.uri)
    return found and {name: [shard.crc32c for shard in split.shards] for name, split in found.splits.items()}


def _fingerprint(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
