"""`python -m tfx_distribute.trainer_module --job FILE`: one training process of the cluster that TF_CONFIG describes."""

import argparse
import os
import sys


def main() -> int:
    """Reads the command line and runs the process."""
    parser = argparse.ArgumentParser(prog="python -m tfx_distribute.trainer_module", description=__doc__)
    parser.add_argument("--job", required=True, metavar="FILE", help="a training job document, JSON")
    arguments = parser.parse_args()
    # Read by TensorFlow when it is imported: the `tf.keras` that TFX, TFT and TFMA use.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    from tfx_distribute.trainer_module import process

    return process.main(arguments.job)


if __name__ == "__main__":
    sys.exit(main())
