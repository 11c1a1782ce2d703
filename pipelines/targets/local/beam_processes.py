"""Chooses how many processes Beam gets on this machine, for each component.

One process is the quickest for little data: others take seconds to start.
"""

import itertools
import os
import re

from ml_metadata.proto import metadata_store_pb2
from tfx.components.example_gen import utils
from tfx.dsl.io import fileio
from tfx.orchestration.portable import beam_executor_operator, data_types
from tfx.proto.orchestration import executable_spec_pb2, execution_result_pb2, placeholder_pb2
from tfx.types import standard_artifacts
from typing_extensions import override

from tfx_distribute.components.beam import parts
from tfx_distribute.pipelines.spec import beam

# From here on, two processes were quicker than one, all components together. Examples
# are compressed, to a quarter of a CSV file.
MIN_BYTES_OF_EXAMPLES, MIN_BYTES_OF_FILES = 16 << 20, 64 << 20
# Each process has TFX and TensorFlow in memory, and some of the data.
BYTES_PER_PROCESS = 4 << 30


class BeamOperator(beam_executor_operator.BeamExecutorOperator):
    """Runs executors, and gives Beam several processes if they have much data.

    The number in the pipeline file, if there is one, counts instead: see `spec.beam`.
    """

    @override
    def run_executor(
        self, execution_info: data_types.ExecutionInfo, make_beam_pipeline_fn: object = None
    ) -> execution_result_pb2.ExecutorOutput:
        given = [argument.value.string_value for argument in self.beam_pipeline_args]
        is_direct = f"--runner={beam.RUNNERS['direct'].name}" in given
        is_open = is_direct and not any(argument.startswith("--direct_num_workers=") for argument in given)
        if is_open and _is_large(execution_info):
            self.beam_pipeline_args += [
                placeholder_pb2.PlaceholderExpression(value=metadata_store_pb2.Value(string_value=argument))
                for argument in beam.make_direct_arguments(max_processes())
            ]
        return super().run_executor(execution_info, make_beam_pipeline_fn)


OPERATORS = {executable_spec_pb2.BeamExecutableSpec: BeamOperator}


def max_processes() -> int:
    """Returns how many processes the cores and the memory of this machine allow."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(os.cpu_count() or 1, memory // BYTES_PER_PROCESS, parts.MAX_PARTS))


def _is_large(execution: data_types.ExecutionInfo) -> bool:
    """Returns True for an ExampleGen of large files, or large input examples."""
    fingerprint = str(execution.exec_properties.get(utils.FINGERPRINT_PROPERTY_NAME) or "")
    if fingerprint:
        return sum(map(int, re.findall(r"\btotal_bytes:(\d+)", fingerprint))) >= MIN_BYTES_OF_FILES
    artifacts = itertools.chain(*execution.input_dict.values())
    examples = (each for each in artifacts if each.type_name == standard_artifacts.Examples.TYPE_NAME)
    folders = itertools.chain(*(fileio.walk(each.uri) for each in examples))
    sizes = (fileio.stat(os.path.join(folder, file)).length for folder, _, files in folders for file in files)
    return sum(sizes) >= MIN_BYTES_OF_EXAMPLES
