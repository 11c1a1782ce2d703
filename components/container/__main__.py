"""Runs one step of a pipeline on Kubeflow Pipelines.

    python -m tfx_distribute.components.container execute --executor-input JSON ...

TFX's own entrypoint cannot run on open-source Kubeflow Pipelines: it needs the types of
input artifacts, which the backend leaves out; it fails at an output that the backend
adds; and it tries to read s3:// and minio:// addresses directly, which it cannot do.
"""

import argparse
import json
import os
import sys
import traceback

from absl import logging

from tfx_distribute.components.beam import errors
from tfx_distribute.trainer_module import garbage_collection, tpu_library
from tfx_distribute.trainer_module.user_code import user_exit


def main(argv: list[str] | None = None) -> int:
    """Runs one step; returns 0, or 1 after writing an error to standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m tfx_distribute.components.container",
        description="Runs one step of a pipeline on Kubeflow Pipelines.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name, help_ in (
        ("execute", "runs a component's executor"),
        ("resolve-input", "finds the input files of an ExampleGen and their fingerprint"),
        ("latest-artifact", "finds the model or the data that new ones are compared with"),
    ):
        command = subparsers.add_parser(name, help=help_)
        command.add_argument("--executor-input", type=json.loads, required=True, help="ExecutorInput of KFP, as JSON")
        if name == "latest-artifact":
            command.add_argument("--metadata-service", required=True, metavar="HOST:PORT", help="metadata store")
            command.add_argument("--pipeline", required=True, help="name of the pipeline")
            command.add_argument("--pipeline-root", required=True, metavar="ADDRESS", help="root of its artifacts")
            command.add_argument("--type", dest="type_name", required=True, help="Kubeflow's name of the type")
            continue
        command.add_argument("--interface", type=json.loads, required=True, help="types of artifacts and parameters")
        command.add_argument("--path", action="append", default=[], metavar="NAME=PATH", help="local path of an artifact")
        command.add_argument("--class", dest="class_path", required=True, help="dotted path of the executor or driver class")
    known, beam_args = parser.parse_known_args(argv)
    logging.set_verbosity(logging.INFO)
    os.environ.update(tpu_library.NOT_LOADED)
    with garbage_collection.paused():
        from tfx_distribute.components.container import commands

    try:
        if known.command == "latest-artifact":
            commands.find_latest(
                known.executor_input, known.metadata_service, known.pipeline, known.pipeline_root, known.type_name
            )
        elif known.command == "resolve-input":
            commands.resolve_input(known.class_path, known.executor_input, known.interface)
        else:
            paths = dict(path.split("=", 1) for path in known.path)
            commands.execute(known.class_path, known.executor_input, known.interface, paths, beam_args)
    except Exception as error:
        if (own := errors.find_own(error)) is None:
            raise
        print(own, file=sys.stderr)
        return 1
    except SystemExit as error:  # from user code; Kubeflow Pipelines would count exit code 0 as success
        traceback.print_exception(error)
        print(user_exit.describe(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # Argo starts steps with a umask of 0, so that everybody could write to the models
    # that they push.
    os.umask(os.umask(0) | 0o002)
    sys.exit(main())
