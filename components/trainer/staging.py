"""Copies artifacts of a pipeline step to shared storage and back, where needed.

Kubeflow's launcher copies artifacts between s3:// or minio:// and a folder of the
step's container, which other pods cannot see. Training in several pods therefore works
on a shared volume, and its outputs are copied back.
"""

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass

from tfx import types
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from tfx_distribute.trainer_module.errors import ConfigurationError

Artifacts = dict[str, list[types.Artifact]]

INPUTS = "inputs"  # name of the folder with copies of inputs
_OUTPUTS = "outputs"


@dataclass(frozen=True)
class Staged:
    """Artifacts that all pods can reach.

    Attributes:
      addresses: Folder of an artifact's copy -> folder of the artifact.
    """

    inputs: Artifacts
    outputs: Artifacts
    addresses: Mapping[str, str]

    def copy_back(self) -> None:
        """Copies the files of staged outputs to the output artifacts."""
        for artifact in (artifact for artifacts in self.outputs.values() for artifact in artifacts):
            if artifact.uri in self.addresses:
                io_utils.copy_dir(artifact.uri, self.addresses[artifact.uri])


def stage(inputs: Artifacts, outputs: Artifacts, folder: str, is_shared: bool) -> Staged:
    """Copies artifacts to a shared folder, unless they are remote.

    The inputs stay as they are; the outputs get folders for their files. `is_shared` is
    True if the training's pods can reach the folder.
    """
    all_artifacts = [artifact for artifacts in (*inputs.values(), *outputs.values()) for artifact in artifacts]
    local_uris = [artifact.uri for artifact in all_artifacts if not _is_remote(artifact)]
    if local_uris and not is_shared:
        raise ConfigurationError(
            f"training_dir: is missing; the processes of the training cannot reach {local_uris[0]}, which is in this step "
            "only; write a folder that all of them and this step can write to (with targets.kubeflow: below the mount_path "
            "of a volume)"
        )
    staged_inputs, staged_outputs, addresses = copy.deepcopy(inputs), copy.deepcopy(outputs), {}
    for kind, artifacts_by_name in ((INPUTS, staged_inputs), (_OUTPUTS, staged_outputs)):
        for name, artifacts in artifacts_by_name.items():
            for number, artifact in enumerate(artifacts):
                if _is_remote(artifact):
                    continue
                staged_uri = os.path.join(folder, kind, f"{name}-{number}")
                if kind == _OUTPUTS:
                    fileio.makedirs(staged_uri)
                # An earlier attempt of this step may have left a copy, which a training
                # still reads.
                elif not fileio.exists(f"{staged_uri}.complete"):  # mounted buckets cannot rename folders
                    _copy(artifact.uri, staged_uri)
                    io_utils.write_string_file(f"{staged_uri}.complete", "")
                if kind == INPUTS and not fileio.isdir(artifact.uri):
                    staged_uri = os.path.join(staged_uri, os.path.basename(artifact.uri))
                addresses[staged_uri] = artifact.uri
                artifact.uri = staged_uri
    return Staged(staged_inputs, staged_outputs, addresses)


def _copy(uri: str, folder: str) -> None:
    """Copies an artifact, which is a file for some base models, to a new folder."""
    if fileio.isdir(uri):
        io_utils.copy_dir(uri, folder)
        return
    fileio.makedirs(folder)
    fileio.copy(uri, os.path.join(folder, os.path.basename(uri)), overwrite=True)


def _is_remote(artifact: types.Artifact) -> bool:
    return "://" in artifact.uri
