"""Runs a pipeline's steps as processes of this machine, as Kubeflow runs containers.

A step sees this machine. So the folder of a claim is at its mount path, and local
copies of artifacts are in a folder of the run instead of KFP's /gcs, /s3 and /minio.
"""

import json
import shutil
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from forked import ForkedProcesses, run_container
from kubeflow_pipelines import SCHEMES, Document, Step, StepError


@dataclass
class StepProcesses:
    """Runs steps as processes.

    Attributes:
      folder: Folder of the object store, and of the files in containers.
      forked: Starts the steps, but for some.
      environment: Environment variables of every step.
      new_processes: Names of steps that are new processes, as in containers.
    """

    folder: Path
    forked: ForkedProcesses
    environment: Mapping[str, str] = field(default_factory=dict)
    new_processes: Collection[str] = ()

    def root(self, pod: str) -> str:
        return str(self.folder / "pods" / pod)

    def run(self, step: Step) -> tuple[str, Document]:
        for uri in step.inputs:
            stored, local = self._paths(step.pod, uri)
            if stored.is_dir():
                shutil.copytree(stored, local, dirs_exist_ok=True)  # inputs may share it
        for uri in step.outputs:
            self._paths(step.pod, uri)[1].parent.mkdir(parents=True, exist_ok=True)
        log = self._run(step)
        for uri in step.outputs:
            stored, local = self._paths(step.pod, uri)
            if local.is_dir():
                shutil.copytree(local, stored)
            elif local.exists():
                stored.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(local, stored)
        output = Path(step.output_file)
        return log, json.loads(output.read_text()) if output.exists() else {}

    def _paths(self, pod: str, uri: str) -> tuple[Path, Path]:
        """Returns the path of an address in the object store, and in the container."""
        scheme, _, rest = uri.partition("://")
        return self.folder / "store" / scheme / rest, Path(self.root(pod)) / SCHEMES[scheme] / rest

    def _run(self, step: Step) -> str:
        environment = {**self.environment, "KFP_POD_NAME": step.pod, "KFP_POD_UID": str(uuid.uuid4())}
        environment |= {variable["name"]: variable["value"] for variable in step.container.get("env", ())}
        forked = None if step.name in self.new_processes else self.forked
        code, text = run_container(step.words, environment, self.folder / f"{step.pod}.log", forked)
        if code:
            raise StepError(step.name, text)
        return text
