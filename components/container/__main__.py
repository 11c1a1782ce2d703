"""`python -m tfx_distribute.components.container`: one step of a pipeline, in its container.

What TFX brings for this cannot run on open-source Kubeflow Pipelines: it takes the types of input artifacts from what the
backend leaves out, fails at an output that the backend adds, and reads s3:// and minio:// by itself, which it cannot.
"""

import argparse
import json
import sys
import traceback

from absl import logging

from tfx_distribute.trainer_module.errors import TfxDistributeError
from tfx_distribute.trainer_module.user_code import user_exit


def main(argv: list[str] | None = None) -> int:
    """Runs one step.

    Returns:
      The exit code: 0 when it is done; 1 where it failed, with what failed on standard error.
    """
    parser = argparse.ArgumentParser(prog="python -m tfx_distribute.components.container", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    for name, help_ in (
        ("execute", "runs a component's executor"),
        ("resolve-input", "looks which input files an ExampleGen has, and whether they have changed"),
        ("latest-blessed-model", "looks for the model that a new one is compared with"),
    ):
        command = what.add_parser(name, help=help_)
        command.add_argument("--executor-input", type=json.loads, required=True, help="KFP's ExecutorInput, JSON")
        if name == "latest-blessed-model":
            command.add_argument("--metadata-service", required=True, metavar="HOST:PORT", help="the metadata store")
            command.add_argument("--pipeline", required=True, help="name of the pipeline")
            command.add_argument("--pipeline-root", required=True, metavar="ADDRESS", help="where its artifacts are")
            continue
        command.add_argument("--component", type=json.loads, required=True, help="the step's interface, a ComponentSpec")
        command.add_argument("--path", action="append", default=[], metavar="NAME=PATH", help="where an artifact lies here")
        command.add_argument("--class", dest="class_path", required=True, help="the executor, or the driver, by its path")
    known, beam_args = parser.parse_known_args(argv)
    logging.set_verbosity(logging.INFO)
    from tfx_distribute.components.container import commands

    try:
        if known.what == "latest-blessed-model":
            commands.latest_blessed_model(known.executor_input, known.metadata_service, known.pipeline, known.pipeline_root)
        elif known.what == "resolve-input":
            commands.resolve_input(known.class_path, known.executor_input, known.component)
        else:
            paths = dict(given.split("=", 1) for given in known.path)
            with user_exit.os_exit_raises():
                commands.execute(known.class_path, known.executor_input, known.component, paths, beam_args)
    except TfxDistributeError as error:
        print(error, file=sys.stderr)
        return 1
    except SystemExit as error:  # of user code, which Kubeflow Pipelines would take for success
        traceback.print_exception(error)
        print(user_exit.describe(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
