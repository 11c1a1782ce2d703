"""Runs one training process of the cluster that TF_CONFIG describes.

python -m tfx_distribute.trainer_module --job FILE
"""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from tfx_distribute.trainer_module import garbage_collection, tpu_library
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingJob, keras_environment
from tfx_distribute.trainer_module.liveness import exit_codes, exit_functions


def main() -> NoReturn:
    """Parses the command line, runs the process, and ends it."""
    parser = argparse.ArgumentParser(
        prog="python -m tfx_distribute.trainer_module",
        description="Runs one training process of the cluster that TF_CONFIG describes.",
    )
    parser.add_argument("--job", required=True, metavar="FILE", help="path or address of a training job document (JSON)")
    arguments = parser.parse_args()
    # A regular exit may wait half a minute for threads of tf.data, and keep a machine
    # busy.
    exit_functions.end(_run(arguments.job))


def _run(job_file: str) -> int:
    # The Keras version has to be set before TensorFlow is imported, which is needed to
    # read an address. A launcher that passes an address sets the version itself.
    if "://" not in job_file:
        try:
            job = _read(Path(job_file))
        except ConfigurationError as error:
            print(error, file=sys.stderr)
            return exit_codes.FAILED
        os.environ.update(keras_environment(job.training_options.keras_version))
    tpu_library.configure(os.environ)
    with garbage_collection.paused():
        from tfx_distribute.trainer_module import process

    exit_functions.forget()
    return process.main(job_file)


def _read(file: Path) -> TrainingJob:
    """Reads a job document; raises ConfigurationError if this process cannot."""
    try:
        return TrainingJob.from_json(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(
            f"--job: {file} cannot be read: {error.strerror}; the step that started this process wrote it. On Kubeflow, "
            "targets.kubeflow.training_dir has to be on a volume that all pods share (ReadWriteMany), and all of them "
            f"have to run as the same user; this one is user {os.getuid()}, group {os.getgid()}"
        ) from error


if __name__ == "__main__":
    main()
