"""What a training is of: its inputs as one word, so that another try of the same finds what the one before saved."""

import hashlib
import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging
from tfx import types

from tfx_distribute.trainer_module.data import shard_manifest
from tfx_distribute.trainer_module.job.training_job import TrainingData, TrainingJob
from tfx_distribute.trainer_module.lifecycle import atomic_files
from tfx_distribute.trainer_module.training.checkpoint import STATE_FILE
from tfx_distribute.trainer_module.user_code import fingerprint

IDENTITY_FILE = "identity.json"

# What says how training goes about it, and not what comes of it.
RESULT_NEUTRAL = ("steps_per_execution", "profile_steps", "jit_compile")


def fingerprint_inputs(
    job: TrainingJob,
    data: TrainingData,
    examples: list[types.Artifact],
    module_fingerprint: str | None = None,
    addresses: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What a training is of, part by part: name -> fingerprint.

    Workers, devices and strategy are no part of it: one strategy may take up what another one saved.

    Args:
      job: The training.
      data: Its data.
      examples: The examples that it is given.
      module_fingerprint: What the pipeline knows of the module's files, beside what is found here.
      addresses: Where a copy of an artifact lies that is read in its place -> where the artifact does.
    """
    schedule = {name: value for name, value in asdict(job.schedule).items() if name not in RESULT_NEUTRAL}
    order = {"shuffle_buffer_size": job.reading.shuffle_buffer_size, "cycle_length": job.reading.cycle_length}
    shards = [_checksums(artifact) for artifact in examples]
    read = asdict(data)
    for place, address in (addresses or {}).items():  # another try of the same has copies elsewhere
        read = json.loads(json.dumps(read).replace(json.dumps(f"{place}/")[1:-1], json.dumps(f"{address}/")[1:-1]))
    # Where the bytes are known, it is no matter where they lie; nor what made them, where it makes the same.
    if shards and all(shards):
        read["train"], read["eval"] = data.train.num_examples, data.eval and data.eval.num_examples
        del read["transform_graph"], read["schema"]
    return {
        "module": _fingerprint({"function": job.module.function, "files": _module_files(job), "told": module_fingerprint}),
        "data": _fingerprint({"read": read, "shards": shards}),
        "hparams": _fingerprint(dict(job.hparams)),
        "parameters": _fingerprint({**schedule, **order}),
        "environment": _fingerprint(fingerprint.environment()),
    }


def checkpoint_dir(root: str, identity: Mapping[str, str]) -> str:
    """The folder of a training's state; says what is different where there are only states of others."""
    folder = os.path.join(root, _fingerprint(dict(identity)))
    if not tf.io.gfile.exists(folder):
        _tell_of_others(root, identity)
        tf.io.gfile.makedirs(folder)
        atomic_files.write(os.path.join(folder, IDENTITY_FILE), json.dumps(dict(identity), indent=1))
    return folder


def _tell_of_others(root: str, identity: Mapping[str, str]) -> None:
    for name in tf.io.gfile.listdir(root) if tf.io.gfile.exists(root) else ():
        folder = os.path.join(root, name)
        text = atomic_files.read(os.path.join(folder, IDENTITY_FILE))
        if text is not None and tf.io.gfile.exists(os.path.join(folder, STATE_FILE)):
            other = json.loads(text)
            changed = " and ".join(part for part in identity if other.get(part) != identity[part])
            logging.warning("Starts afresh: a saved state is there, but of another %s; it stays in %s", changed, folder)


def _module_files(job: TrainingJob) -> list[str]:
    """Fingerprints of the user's files: those beside the module, as TFX packages them; or an installed package's."""
    places = list(job.module.search_path)
    if not places:
        package = importlib.util.find_spec(job.module.function.partition(".")[0])
        if package:
            places = list(package.submodule_search_locations or filter(None, [package.origin]))
    return [fingerprint.of_folder(path) if path.is_dir() else fingerprint.of_file(path) for path in map(Path, places)]


def _checksums(artifact: types.Artifact) -> Any:
    """What the manifest of shards says of their bytes; None where there is none."""
    found = shard_manifest.read(artifact.uri)
    return found and {name: [shard.crc32c for shard in split.shards] for name, split in found.splits.items()}


def _fingerprint(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
