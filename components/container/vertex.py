"""Runs one step of a pipeline on Vertex AI, with TFX's own entrypoint.

    python -m tfx_distribute.components.container.vertex

TFX's entrypoint alone lets user code end the step: `sys.exit(0)` in a
`preprocessing_fn` would make it succeed without outputs. It also drops what an executor
returns, so that a step would succeed whose executor has rejected its data.
"""

import argparse
import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any

from absl import app
from absl.flags import argparse_flags

from tfx_distribute.trainer_module import errors, garbage_collection
from tfx_distribute.trainer_module.user_code import user_exit

Arguments = tuple[argparse.Namespace, list[str]]


def main(arguments: Arguments) -> int:
    """Runs the step; returns 0, or 1 if user code has called `sys.exit()`.

    Other errors are raised, and a DataError if the executor returns that of its data.
    """
    with garbage_collection.paused():
        from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor
        from tfx.utils import import_utils

        from tfx_distribute.components.beam import patches
        from tfx_distribute.components.report import artifact_types
        from tfx_distribute.trainer_module.keras import autograph

    artifact_types.register()
    patches.install()
    autograph.exempt_libraries()
    try:
        executor = import_utils.import_class_by_path(arguments[0].executor_class_path)
        executor.Do = _raising_errors(executor.Do)
        kubeflow_v2_run_executor.main(arguments)
    except SystemExit as error:
        traceback.print_exception(error)
        print(user_exit.describe(error), file=sys.stderr)
        return 1
    return 0


def _raising_errors(do: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an executor's `Do`, which may return an error in place of raising it."""

    @functools.wraps(do)
    def raising(*arguments: Any) -> None:
        result = getattr(do(*arguments), "execution_result", None)
        if result and result.code:
            raise errors.DataError(result.result_message)

    return raising


def _parse(argv: list[str]) -> Arguments:
    parser = argparse_flags.ArgumentParser(prog="python -m tfx_distribute.components.container.vertex")
    parser.add_argument("--executor_class_path", required=True)
    parser.add_argument("--json_serialized_invocation_args", required=True)
    parser.add_argument("--json_serialized_inputs_spec_args")
    arguments: Arguments = parser.parse_known_args(argv[1:])
    return arguments


if __name__ == "__main__":
    app.run(main, flags_parser=_parse)
