"""Defines executors for tests, which end in different ways."""

import sys

from tfx.dsl.components.base import base_executor
from tfx.proto.orchestration import execution_result_pb2


class Executor(base_executor.BaseExecutor):
    """Calls sys.exit(0)."""

    def Do(self, input_dict, output_dict, exec_properties):  # noqa: N802
        sys.exit(0)


class WorkingExecutor(base_executor.BaseExecutor):
    """Does nothing, and succeeds."""

    def Do(self, input_dict, output_dict, exec_properties):  # noqa: N802
        pass


class RejectingExecutor(base_executor.BaseExecutor):
    """Returns an error in place of raising it, as ExampleValidator does."""

    def Do(self, input_dict, output_dict, exec_properties):  # noqa: N802
        result = execution_result_pb2.ExecutorOutput()
        result.execution_result.code, result.execution_result.result_message = 9, "the data were rejected"
        return result
