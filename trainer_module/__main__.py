"""Runs one training process of the cluster that TF_CONFIG describes.

python -m tfx_distribute.trainer_module --job FILE
"""

import argparse
import os
import sys
from pathlib import Path

from tfx_distribute.trainer_module import garbage_collection, tpu_library
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingJob, keras_environment
from tfx_distribute.trainer_module.lifecycle import exit_codes, exit_functions


def main() -> int:
    """Parses the command line and runs the process; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tfx_distribute.trainer_module",
        description="Runs one training process of the cluster that TF_CONFIG describes.",
    )
    parser.add_argument("--job", required=True, metavar="FILE", help="path or address of a training job document (JSON)")
    parser.add_argument(
        "--done-code", type=int, default=0, metavar="N", help="exit code of a process that has done its part (default 0)"
    )
    arguments = parser.parse_args()
    # The Keras version has to be set before TensorFlow is imported, which is needed to
    # read an address. A launcher that passes an address sets the version itself.
    if "://" not in arguments.job:
        try:
            job = _read(Path(arguments.job))
        except ConfigurationError as error:
            print(error, file=sys.stderr)
            return exit_codes.FAILED
        os.environ.update(keras_environment(job.training_options.keras_version))
    tpu_library.configure(os.environ)
    with garbage_collection.paused():
        from tfx_distribute.trainer_module import process

    exit_functions.record()
    return process.main(arguments.job) or int(arguments.done_code)


def _read(file: Path) -> TrainingJob:
    """Reads a job document.

    Raises:
      ConfigurationError: This process cannot read it.
    """
    try:
        return TrainingJob.from_json(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(
            f"--job: {file} cannot be read: {error.strerror}; the step that started this process wrote it. On Kubeflow, "
            "targets.kubeflow.training_dir has to be on a volume that all pods share (ReadWriteMany), and all of them "
            f"have to run as the same user; this one is user {os.getuid()}, group {os.getgid()}"
        ) from error


if __name__ == "__main__":
    # A regular exit may wait half a minute for threads of tf.data, and keep a machine
    # busy.
    exit_functions.end(main())
