"""Fingerprints a run's inputs, so that a retry finds its state, and reserves it."""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import tensorflow as tf
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import standard_component_specs

from tfx_distribute.components.launchers import locks, storage
from tfx_distribute.components.trainer.staging import Staged
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.data import shard_manifest
from tfx_distribute.trainer_module.errors import ConfigurationError, first_line
from tfx_distribute.trainer_module.job.training_job import Outputs, TrainingData, TrainingJob
from tfx_distribute.trainer_module.state import saved_step, state_folder
from tfx_distribute.trainer_module.state.base_model import location
from tfx_distribute.trainer_module.state.saved_step import BEST_FILE, STATE_FILE
from tfx_distribute.trainer_module.user_code import fingerprint, module_loader

IDENTITY_FILE = "identity.json"

_logger = logging.getLogger(__name__)  # `tfx-distribute run` shows its warnings

# Parameters that do not affect the result.
RESULT_NEUTRAL = ("steps_per_execution", "profile_steps", "jit_compile")


def fingerprint_inputs(job: TrainingJob, staged: Staged, module_fingerprint: str | None = None) -> dict[str, str]:
    """Returns part -> fingerprint of the inputs of a `build_model`'s training.

    The parts are `module`, `data`, `hparams`, `parameters`, `environment` and, if there
    is one, `base_model`.

    Workers, devices and strategy are not part of them: a run may resume from a
    checkpoint that was saved under another strategy.

    `module_fingerprint` is the pipeline's, which is added to that of the module's
    files.
    """
    data = cast(TrainingData, job.data)  # a `run_fn`, which has none, saves by itself
    options = {name: value for name, value in asdict(job.training_options).items() if name not in RESULT_NEUTRAL}
    order = {"shuffle_buffer_size": job.input_options.shuffle_buffer_size, "cycle_length": job.input_options.cycle_length}
    checksums = _read_checksums(staged.inputs[standard_component_specs.EXAMPLES_KEY])
    data_document = asdict(data)
    del data_document["label_ranges"]  # follow from the examples
    for copy, original in staged.addresses.items():  # a retry has its copies elsewhere
        text = json.dumps(data_document).replace(json.dumps(f"{copy}/")[1:-1], json.dumps(f"{original}/")[1:-1])
        data_document = json.loads(text)
    # If the checksums of the examples are known, neither their place matters nor what
    # produced them; nor do splits that are not read.
    if checksums:
        data_document["train"] = [checksums[file] for file in data.train.files]
        data_document["eval"] = data.eval and [checksums[file] for file in data.eval.files]
        del data_document["transform_graph"], data_document["schema"]
    base_model = job.base_model and [location.fingerprint(job.base_model), asdict(job.warm_start)]
    # These keys are part of the fingerprints: if one were renamed, retries would not
    # find existing checkpoints.
    module = {"function": job.module.function, "files": _fingerprint_module_files(job), "told": module_fingerprint}
    return {
        "module": fingerprint_of(module),
        "data": fingerprint_of(data_document),
        "hparams": fingerprint_of(dict(job.hparams)),
        "parameters": fingerprint_of({**options, **order}),
        "environment": fingerprint_of(fingerprint.environment()),
        **({"base_model": fingerprint_of(base_model)} if base_model else {}),
    }


def ensure_checkpoint_dir(
    root: str, identity: Mapping[str, str], state_file: str = STATE_FILE, noun: str = "training"
) -> str:
    """Returns the folder of a run's state below `root`; creates it if it is missing.

    Logs a warning if there are only states of runs with other inputs: of those whose
    folder, or one in it, has the `state_file`. `noun` is the kind of run, for messages.
    """
    folder = os.path.join(root, fingerprint_of(dict(identity)))
    if not tf.io.gfile.exists(folder):
        _warn_of_other_states(root, identity, state_file, noun)
        document = {**identity, "versions": fingerprint.environment()}  # these for people
        try:
            tf.io.gfile.makedirs(folder)
            atomic_files.write(os.path.join(folder, IDENTITY_FILE), json.dumps(document, indent=1))
        except (tf.errors.OpError, OSError) as error:
            raise ConfigurationError(
                f"checkpoint_dir: the state of this {noun} cannot be kept in {root} ({first_line(error)}); let this step "
                "write there, or write another folder"
            ) from error
    return folder


def _warn_of_other_states(root: str, identity: Mapping[str, str], state_file: str, noun: str) -> None:
    for name in tf.io.gfile.listdir(root) if tf.io.gfile.exists(root) else ():
        folder = os.path.join(root, name)
        path = os.path.join(folder, IDENTITY_FILE)
        text = atomic_files.read(path)
        if text is not None and (
            tf.io.gfile.exists(os.path.join(folder, state_file)) or saved_step.find(folder, state_file)
        ):
            other_identity = saved_step.parse(text, path)
            changed = [part for part in identity if other_identity.get(part) != identity[part]]
            _logger.warning(
                "Starting from scratch: the state saved in %s is of a %s that differs in %s; it is kept",
                folder,
                noun,
                " and ".join(changed),
            )


@contextlib.contextmanager
def reserve_state(outputs: Outputs) -> Iterator[None]:
    """Reserves a job's saved state within the block, against other live runs.

    If the block succeeds and there is a model, the state is removed.
    """
    folder = outputs.checkpoint_dir
    if not folder:
        yield
        return
    advice = (
        "it trains the same module on the same data and saves its state there; wait until it ends, stop it, or write "
        "another checkpoint_dir"
    )
    with locks.exclusive(folder, "the saved training state", advice):
        storage.call(folder, lambda: state_folder.take_ownership(folder, outputs.result_file))
        yield
        if fileio.exists(outputs.serving_model_dir):
            # First what makes the other files count, as this may be interrupted.
            with contextlib.suppress(*storage.ERRORS):
                for name in (STATE_FILE, BEST_FILE):
                    for path in saved_step.find(folder, name):
                        storage.discard(path)
            storage.discard(folder)


def _fingerprint_module_files(job: TrainingJob) -> list[str]:
    """Fingerprints the files of the user's module, as TFX packages them if it does."""
    if not job.module.search_path:
        name = job.module.function.rpartition(".")[0]
        file = module_loader.locate(name)
        return [fingerprint.of_module(name, file)] if file else []
    paths = map(Path, job.module.search_path)
    return [fingerprint.of_folder(path) if path.is_dir() else fingerprint.of_file(path) for path in paths]


def _read_checksums(examples: list[types.Artifact]) -> dict[str, str]:
    """Returns the checksum of each shard by its path; empty if one has no manifest."""
    manifests = [(artifact.uri, shard_manifest.read(artifact.uri)) for artifact in examples]
    return {
        os.path.join(folder, shard.file): shard.crc32c
        for folder, manifest in manifests
        if manifest and all(each for _, each in manifests)
        for split in manifest.splits.values()
        for shard in split.shards
    }


def fingerprint_of(value: Any) -> str:
    """Returns the fingerprint of a document."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
