"""Runs a pipeline on this machine.

It uses TFX's LocalDagRunner, and reports when each node starts and ends.
"""

import contextlib
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

from absl import logging
from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.orchestration.local import local_dag_runner, runner_utils
from tfx.orchestration.portable import launcher, runtime_parameter_utils
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.proto.orchestration import pipeline_pb2

from tfx_distribute.components.beam import direct_runner, patches
from tfx_distribute.components.example_validator.rules import STOPPED
from tfx_distribute.components.launchers import locks
from tfx_distribute.components.launchers.local import gpus as launcher_gpus
from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.pipelines.spec import user_module
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.pipelines.targets.local import beam_processes, results, runs, stored_artifacts
from tfx_distribute.pipelines.targets.local.paths import RunPaths
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import UserModule
from tfx_distribute.trainer_module.user_code import module_loader as module_lib


class NodeError(Exception):
    """A node of the pipeline failed; `__cause__` is the exception that it raised.

    Attributes:
      node: The node's id.
      rejection: Why it has rejected the data, if that is what has stopped the run.
    """

    def __init__(self, node: str, rejection: str = ""):
        super().__init__(f"{node} failed")
        self.node, self.rejection = node, rejection


# Called with a node, its seconds, and True if its outputs are those of an earlier run;
# before the node runs, the seconds are None.
NodeListener = Callable[[str, float | None, bool], None]


class LocalRunner(local_dag_runner.LocalDagRunner):
    """A LocalDagRunner with a listener, whose errors name the node that failed.

    `parameters` are runtime parameters; others take their defaults.
    """

    def __init__(self, parameters: Mapping[str, int | float | str], listener: NodeListener, run_id: str):
        super().__init__()
        self._parameters, self._listener, self._run_id = dict(parameters), listener, run_id

    def run_with_ir(self, pipeline: pipeline_pb2.Pipeline, run_options: Any = None) -> None:
        """Runs the nodes one after another; one that fails raises a NodeError."""
        runtime_parameter_utils.substitute_runtime_parameter(
            pipeline,
            {**self._parameters, constants.PIPELINE_RUN_ID_PARAMETER_NAME: self._run_id},
        )
        deployment = runner_utils.extract_local_deployment_config(pipeline)
        store = deployment.metadata_connection_config
        connection = metadata.Metadata(getattr(store, store.WhichOneof("connection_config")))
        with connection as opened:
            stored_artifacts.reconcile(opened.store, pipeline.runtime_spec.pipeline_root.field_value.string_value)
        for node in (each.pipeline_node for each in pipeline.nodes):
            name = node.node_info.id
            self._listener(name, None, False)
            start = time.monotonic()
            try:
                with _without_watchers():
                    cached = _launch(node, pipeline, deployment, connection)
            except KeyboardInterrupt:
                raise
            # sys.exit(0) in user code is a failure too: the node has not done its work.
            except BaseException as error:
                logging.exception("%s failed", name)
                # TFX's error for a result of an executor that has a code.
                result = getattr(getattr(error, "executor_output", None), "execution_result", None)
                raise NodeError(name, result.result_message if result and result.code == STOPPED else "") from error
            self._listener(name, time.monotonic() - start, cached)


def _launch(
    node: pipeline_pb2.PipelineNode, pipeline: pipeline_pb2.Pipeline, deployment: Any, connection: metadata.Metadata
) -> bool:
    """Runs a node; returns True if it took earlier outputs.

    TFX only records why it has not run one, as if an input is not there.
    """
    name = node.node_info.id
    execution = launcher.Launcher(
        pipeline_node=node,
        mlmd_connection=connection,
        pipeline_info=pipeline.pipeline_info,
        pipeline_runtime_spec=pipeline.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, name),
        custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, name),
        custom_executor_operators=beam_processes.OPERATORS,
    ).launch()
    if execution is None or execution.execution_id is None:
        return False
    with connection as opened:
        (stored,) = opened.store.get_executions_by_id([execution.execution_id])
    if stored.last_known_state == metadata_store_pb2.Execution.FAILED:
        result = execution_lib.get_execution_result(stored, ignore_parse_errors=True)
        traceback = result.result_message.strip() if result else ""
        reason = traceback.splitlines()[-1] if traceback else "TFX does not say why"
        raise ConfigurationError(f"it was not run: {reason}")
    return bool(stored.last_known_state == metadata_store_pb2.Execution.CACHED)


def run(
    spec: PipelineSpec,
    module: user_module.Module,
    paths: RunPaths,
    server: ForkServer,
    enable_cache: bool,
    on_node: NodeListener,
    on_training: local_launcher.ProgressListener,
    on_beam: Callable[[int, int], None],
) -> results.RunResult:
    """Runs a pipeline on this machine.

    Calls `on_node` before and after each node, `on_training` with each report of each
    training process, and `on_beam`, with the direct runner, with the number of stages
    of a node's Beam pipeline that have run, and of all.
    """
    logging.set_verbosity(logging.INFO)  # so that the log has the messages of TFX
    settings = local_launcher.LocalLauncherSettings(
        log_dir=paths.logs,
        on_progress=on_training,
        server=server,
        gpus=tuple(launcher_gpus.list_visible()),
    )
    with (
        locks.exclusive(str(paths.root), "the run folder", "wait until it ends, or write another --root"),
        # Readable by its owner alone.
        tempfile.TemporaryDirectory(prefix="tfxd-run-", ignore_cleanup_errors=True) as temporary,
        user_module.variable_set("TMPDIR", temporary),
        mock.patch.object(tempfile, "tempdir", temporary),
        terminable(),
        # TFX and absl would parse this process's arguments as their own flags.
        mock.patch.object(sys, "argv", sys.argv[:1] or ["tfx-distribute"]),
        user_module.importable(module),
        local_launcher.settings(settings),
        # TensorFlow would take the GPUs' memory for Transform; training needs it.
        user_module.variable_set("CUDA_VISIBLE_DEVICES", "-1"),
        direct_runner.as_default(on_beam),
    ):
        patches.install()
        # A module that does not import, and processes without GPUs, fail here, before
        # the first node, and not in the middle of the pipeline.
        module_lib.load(UserModule(f"{module.name}.{module.train}"))
        distribution = spec.trainer.parameters.distribution
        processes = strategy_table.reading_processes(distribution)
        launcher_gpus.assign(distribution, 0, processes, list(settings.gpus or ()))
        connection = metadata.sqlite_metadata_connection_config(str(paths.metadata))
        if spec.push and spec.push.directory is None:
            with metadata.Metadata(connection) as opened:
                stored_artifacts.check_pushes(opened.store, spec.name, str(paths.serving))
        pipeline_paths = tfx_pipeline.PipelinePaths(
            pipeline_root=str(paths.artifacts),
            metadata=connection,
            push_directory=str(paths.serving),
            checkpoints=str(paths.checkpoints) if paths.checkpoints else None,
        )
        runner = LocalRunner(tfx_pipeline.get_parameter_values(spec), on_node, paths.run_id)
        runner.run(tfx_pipeline.build(spec, module, pipeline_paths, enable_cache))
        return results.read(runs.find([paths.root], paths.run_id), spec)


@contextlib.contextmanager
def _without_watchers() -> Iterator[None]:
    """Replaces the server that lets remote executors update their execution's metadata.

    TFX starts one for each node, on a port that it finds by listening on every
    interface. Executors in this process do not need it, and any user of the machine
    could call it.
    """
    watchers = types.SimpleNamespace(ExecutionWatcher=lambda **_: mock.Mock(address=""))
    with (
        mock.patch.object(launcher, "execution_watcher", watchers),
        mock.patch.object(launcher, "portpicker", types.SimpleNamespace(pick_unused_port=int)),
    ):
        yield
