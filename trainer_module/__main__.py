"""`python -m tfx_distribute.trainer_module --job FILE`: one training process of the cluster that TF_CONFIG describes."""

import argparse
import os
import sys
from pathlib import Path

from tfx_distribute.trainer_module.job.training_job import TrainingJob, keras_environment


def main() -> int:
    """Reads the command line and runs the process."""
    parser = argparse.ArgumentParser(prog="python -m tfx_distribute.trainer_module", description=__doc__)
    parser.add_argument("--job", required=True, metavar="FILE", help="path or address of a training job document, JSON")
    arguments = parser.parse_args()
    # Before TensorFlow is imported, which it takes to read an address: whoever put the job there has said it already.
    if "://" not in arguments.job and Path(arguments.job).exists():
        job = TrainingJob.from_json(Path(arguments.job).read_bytes())
        os.environ.update(keras_environment(job.schedule.keras_version))
    from tfx_distribute.trainer_module import process

    return process.main(arguments.job)


if __name__ == "__main__":
    code = main()
    # All is written. Python's own end may wait for half a minute for threads of tf.data's, and a machine with it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
