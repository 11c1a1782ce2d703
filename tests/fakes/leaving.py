"""Defines executors for tests, one of which ends its process early."""

import sys

from tfx.dsl.components.base import base_executor


class Executor(base_executor.BaseExecutor):
    """Calls sys.exit(0)."""

    def Do(self, input_dict, output_dict, exec_properties):  # noqa: N802
        sys.exit(0)


class WorkingExecutor(base_executor.BaseExecutor):
    """Does nothing, and succeeds."""

    def Do(self, input_dict, output_dict, exec_properties):  # noqa: N802
        pass
