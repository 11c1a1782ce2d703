"""Artifacts of a step, put where all pods of a training reach them.

Kubeflow's launcher copies what lies in s3:// or minio:// between there and a folder of the step's container, which no other
pod sees. So a training of several pods works on a shared volume, and what comes of it is brought back.
"""

import contextlib
import copy
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfx import types
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from tfx_distribute.trainer_module.errors import ConfigurationError

Artifacts = dict[str, list[types.Artifact]]

INPUTS = "inputs"  # folder of copies


@dataclass(frozen=True)
class Staged:
    """Artifacts where all pods reach them.

    Attributes:
      inputs: Input artifacts.
      outputs: Output artifacts.
      addresses: Where the copy of an artifact lies -> where the artifact does.
    """

    inputs: Artifacts
    outputs: Artifacts
    addresses: Mapping[str, str]


@contextlib.contextmanager
def staged(inputs: Artifacts, outputs: Artifacts, folder: str, is_shared: bool) -> Iterator[Staged]:
    """Has artifacts lie in a shared folder within the block, as far as their own places are not shared.

    Args:
      inputs: Input artifacts.
      outputs: Output artifacts; what is written to those of the block is theirs after it.
      folder: A folder or address for copies.
      is_shared: Whether the pods of the training reach the folder.

    Raises:
      ConfigurationError: An artifact lies in this container only, and nothing shared is known.
    """
    every = [artifact for listed in (*inputs.values(), *outputs.values()) for artifact in listed]
    here = [artifact.uri for artifact in every if not _remote(artifact)]
    if here and not is_shared:
        raise ConfigurationError(
            f"targets.kubeflow.training_dir: is missing; the pods of the training cannot reach {here[0]}, which is in this "
            "step only; write a folder below the mount_path of a volume that all pods can write to"
        )
    moved_in, moved_out, addresses = copy.deepcopy(inputs), copy.deepcopy(outputs), {}
    for kind, artifacts in ((INPUTS, moved_in), ("outputs", moved_out)):
        for name, listed in artifacts.items():
            for number, artifact in enumerate(listed):
                if _remote(artifact):
                    continue
                place = os.path.join(folder, kind, f"{name}-{number}")
                if kind == "outputs":
                    fileio.makedirs(place)
                elif not fileio.exists(place):  # an earlier try of this step may have left it, and a training that reads it
                    io_utils.copy_dir(artifact.uri, f"{place}.partial")
                    fileio.rename(f"{place}.partial", place)
                addresses[place] = artifact.uri
                artifact.uri = place
    yield Staged(moved_in, moved_out, addresses)
    for name, listed in outputs.items():
        for artifact, moved in zip(listed, moved_out[name], strict=True):
            if moved.uri != artifact.uri:
                io_utils.copy_dir(moved.uri, artifact.uri)


def _remote(artifact: types.Artifact) -> bool:
    return "://" in artifact.uri
