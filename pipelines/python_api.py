"""Loads, plans, compiles and runs pipelines from Python.

Users import these functions from `tfx_distribute.pipelines`. Each imports what it
needs when it is called, so that loading a pipeline imports no TFX.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfx_distribute.components.spec_model import Scalar
from tfx_distribute.pipelines.spec import loader, user_module
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.targets import target as target_lib
from tfx_distribute.pipelines.targets.local.target import LocalTarget
from tfx_distribute.pipelines.targets.settings import RemoteSettings

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

    from tfx_distribute.pipelines.run_plan import RunPlan
    from tfx_distribute.pipelines.targets.local.results import RunResult


def load(path: str | Path, parameters: Mapping[str, Scalar] | None = None) -> PipelineSpec:
    """Loads a pipeline file.

    ```python
    spec = load("pipeline.yaml", {"strategy": "mirrored", "accelerator_count": 2})
    ```

    Args:
      path: The YAML file. Paths in it are relative to its folder.
      parameters: Name -> value of pipeline parameters and hyperparameters, which
        replace those of the file, as `-p` does on the command line.

    Returns:
      The validated pipeline.

    Raises:
      ConfigurationError: The file or a parameter is wrong, and the message has one line
        for each mistake.
    """
    return loader.override(loader.load(path), parameters or {})


def run(
    spec: PipelineSpec, root: str | Path | None = None, enable_cache: bool = True, *, quiet: bool = False
) -> "RunResult":
    """Runs a pipeline on this machine, and shows what `tfx-distribute run` shows.

    The logs of TFX, Beam and TensorFlow are in the run's log.

    ```python
    result = run(load("pipeline.yaml"))
    print(result.training["num_replicas"], result.blessed, result.pushed)
    ```

    Args:
      spec: The pipeline.
      root: Folder for artifacts, metadata, logs and pushed models, which is created
        where needed. Default: `targets.local.root`, or `runs/<name>` in the working
        folder.
      enable_cache: True if components whose inputs have not changed take their outputs
        from an earlier run.
      quiet: True to show nothing.

    Returns:
      How the model was trained, its metrics, and where it was pushed to.

    Raises:
      ConfigurationError: The pipeline cannot run as it is written, or another run is
        using its folder. Nothing was started.
      NodeError: A component failed. `__cause__` is the error.
    """
    module = user_module.find(spec)
    target = LocalTarget(spec, {"root": None if root is None else str(root)})
    from tfx_distribute.pipelines.cli import console as console_lib
    from tfx_distribute.pipelines.cli import shown_run

    target.paths.create()
    with console_lib.showing_run(target.spec, target.paths, quiet=quiet) as console:
        return shown_run.run(target.spec, module, target.paths, console, enable_cache)


def make_plan(spec: PipelineSpec, target: str = "local") -> "RunPlan":
    """Works out what a run would do, without starting anything.

    ```python
    plan = make_plan(spec)
    print(plan.num_processes, plan.global_batch_size)
    ```

    Args:
      spec: The pipeline.
      target: Platform to plan for: `local`, `kubeflow` or `vertex`.

    Returns:
      Processes, replicas, batch sizes, training steps and warnings; for a cluster also
      the TFJob, JobSet or CustomJob that training would create.

    Raises:
      ConfigurationError: The pipeline cannot run there as it is written.
    """
    from tfx_distribute.pipelines import run_plan

    return run_plan.make_plan(spec, user_module.find(spec), target_lib.get(target)(spec))


def compile_spec(spec: PipelineSpec, target: str, enable_cache: bool = True) -> target_lib.Package:
    """Compiles a pipeline for Kubeflow Pipelines or Vertex AI. Sends nothing anywhere.

    ```python
    Path("pipeline.yaml").write_text(compile_spec(spec, "kubeflow").to_text())
    ```

    Args:
      spec: The pipeline. The values of its parameters become the defaults of the
        compiled pipeline.
      target: The platform, `kubeflow` or `vertex`; the spec has its settings in
        `targets`.
      enable_cache: True if steps whose inputs have not changed take their outputs from
        an earlier run.

    Returns:
      The compiled pipeline. Its `to_text()` is the file that the platform's client
      takes: YAML for Kubeflow Pipelines, JSON for Vertex AI.

    Raises:
      ConfigurationError: The pipeline cannot run there as it is written.
    """
    return target_lib.get_remote(target)(spec).compile(user_module.find(spec), enable_cache)


def compile_pipeline(
    pipeline: "Pipeline",
    target: RemoteSettings,
    resources: Mapping[str, MachineSpec] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> target_lib.Package:
    """Compiles a TFX pipeline that is written in Python. Sends nothing anywhere.

    Its Trainers get the `launcher` and `checkpoint_dir` of the target, unless they have
    their own.

    ```python
    target = KubeflowSettings(
        image="registry.example.com/team/digits:1", pipeline_root="gs://bucket/root"
    )
    machines = {"Trainer": MachineSpec(memory="32Gi", accelerator="nvidia.com/gpu")}
    package = compile_pipeline(pipeline, target, machines)
    ```

    Args:
      pipeline: The TFX pipeline. The image has what its components import.
      target: Settings of the platform, `KubeflowSettings` or `VertexSettings`; their
        class decides for which one to compile.
      resources: Id of a component, `Trainer`, `ParameterServer` or `default` -> its
        machine. `Trainer` is that of Trainers without their own, and of Tuners.
      defaults: Defaults of pipeline parameters, by name. Others keep those of their
        RuntimeParameters.

    Returns:
      The compiled pipeline, as of `compile_spec`.

    Raises:
      ConfigurationError: The pipeline cannot run there as it is written.
    """
    return target_lib.get_remote(target.TARGET).compile_pipeline(pipeline, target, resources or {}, defaults)
