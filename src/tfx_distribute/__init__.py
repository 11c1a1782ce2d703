"""Distributed training as a parameter of a TFX pipeline.

Three floors, each importing only from those below it:

* `tfx_distribute.pipelines`: the declarative pipeline, its runners and the command line.
* `tfx_distribute.components`: TFX components and the launchers of training clusters.
* `tfx_distribute.trainer_module`: the program that every training process runs.

This package imports nothing by itself, so that the command line answers at once.
"""

__version__ = "0.1.0"
