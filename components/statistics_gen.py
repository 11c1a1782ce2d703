"""Computes statistics of examples with TFX's StatisticsGen, if no split is empty.

Of an empty split, TFX's SchemaGen concludes that all features are deprecated.
"""

from typing import Any

import tensorflow as tf
from tfx import types
from tfx.components.statistics_gen import component, executor
from tfx.components.util import examples_utils
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, json_utils

from tfx_distribute.components.example_gen.names import describe_empty_split
from tfx_distribute.trainer_module.data import tfrecords
from tfx_distribute.trainer_module.errors import ConfigurationError


class Executor(executor.Executor):
    """Computes statistics like TFX's executor, and refuses empty splits."""

    def Do(  # noqa: N802 (TFX's name)
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Computes statistics of each split.

        The inputs are examples and, if there is one, schema; the output is statistics.

        Raises:
          ConfigurationError: A split has no examples.
        """
        excluded = json_utils.loads(exec_properties.get(standard_component_specs.EXCLUDE_SPLITS_KEY) or "null") or []
        examples = artifact_utils.get_single_instance(input_dict[standard_component_specs.EXAMPLES_KEY])
        if examples_utils.get_payload_format(examples) == example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE:
            for split in artifact_utils.decode_split_names(examples.split_names):
                if split not in excluded and _is_empty(examples, split):
                    raise ConfigurationError(describe_empty_split(split))
        super().Do(input_dict, output_dict, exec_properties)


def _is_empty(examples: types.Artifact, split: str) -> bool:
    (folder,) = artifact_utils.get_split_uris([examples], split)
    files = tf.io.gfile.glob(io_utils.all_files_pattern(folder))
    return all(next(tfrecords.scan(file), None) is None for file in files)


class StatisticsGen(component.StatisticsGen):
    """Takes the place, and the arguments, of TFX's StatisticsGen."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
