"""Runs the nodes that one node of a pipeline depends on, and prepares its inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfx import types
from tfx.orchestration import data_types_utils, metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import inputs_utils
from tfx.proto.orchestration import pipeline_pb2

from tfx_distribute.pipelines.spec import user_module
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.pipelines.targets.local import runner
from tfx_distribute.pipelines.targets.local.paths import RunPaths


@dataclass(frozen=True)
class NodeInputs:
    """Inputs that the executor of a node would get.

    Attributes:
      artifacts: Its input artifacts.
      exec_properties: Its execution properties.
    """

    artifacts: dict[str, list[types.Artifact]]
    exec_properties: dict[str, Any]


def run(
    node: str,
    spec: PipelineSpec,
    module: user_module.Module,
    paths: RunPaths,
    connection: Any,
    on_node: runner.NodeListener = lambda event: None,
    run_id: str | None = None,
) -> NodeInputs:
    """Runs the nodes that a node depends on, and returns what the node would get.

    Nodes whose inputs have not changed take their outputs from an earlier run, and the
    next run takes those of this one.

    ```python
    with runner.session(spec, module, paths) as connection:
        inputs = upstream.run("Trainer", spec, module, paths, connection)
    ```

    Args:
      node: Id of the node, which does not run itself.
      spec: The pipeline, with the values of its parameters.
      module: The user's module.
      paths: Where the run keeps its files.
      connection: What `runner.session` yields.
      on_node: Called before and after each node.
      run_id: Id in ML Metadata, which no other run may have: nodes take their inputs
        from the run with their own. Default `paths.run_id`.

    Raises:
      ConfigurationError: The pipeline cannot be built.
      NodeError: A node failed.
    """
    upstream = UpstreamRunner(node, tfx_pipeline.get_parameter_values(spec), on_node, run_id or paths.run_id)
    upstream.run(runner.build(spec, module, paths, connection, enable_cache=True))
    return upstream.inputs


class UpstreamRunner(runner.LocalRunner):
    """Runs the nodes that a node depends on, and resolves its inputs.

    Args:
      node: Id of the node.
      parameters: Values of the pipeline's runtime parameters.
      listener: Called before and after each node.
      run_id: Id of the run in ML Metadata.

    Attributes:
      inputs: What the node would get, once the others have run.
    """

    inputs: NodeInputs

    def __init__(self, node: str, parameters: Mapping[str, int | float | str], listener: runner.NodeListener, run_id: str):
        super().__init__(parameters, listener, run_id)
        self._node = node

    def select(self, nodes: Mapping[str, pipeline_pb2.PipelineNode]) -> set[str]:
        """Returns the ids of the nodes that the node depends on, directly or not."""
        found: set[str] = set()
        waiting = [self._node]
        while waiting:
            new = set(nodes[waiting.pop()].upstream_nodes) - found
            found |= new
            waiting += new
        return found

    def run_with_ir(self, pipeline: pipeline_pb2.Pipeline, run_options: Any = None) -> None:
        """Runs the nodes, and resolves the inputs of the one that they run for."""
        super().run_with_ir(pipeline, run_options)  # gives the pipeline the values of its parameters
        (node,) = [one.pipeline_node for one in pipeline.nodes if one.pipeline_node.node_info.id == self._node]
        store = runner_utils.extract_local_deployment_config(pipeline).metadata_connection_config
        with metadata.Metadata(getattr(store, store.WhichOneof("connection_config"))) as handle:
            (artifacts,) = inputs_utils.resolve_input_artifacts(pipeline_node=node, metadata_handle=handle)
        self.inputs = NodeInputs(
            {key: list(values) for key, values in artifacts.items()},
            data_types_utils.build_parsed_value_dict(
                inputs_utils.resolve_parameters_with_schema(node_parameters=node.parameters)
            ),
        )
