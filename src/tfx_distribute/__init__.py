"""Makes distributed training a parameter of a TFX pipeline.

Each package imports only from those below it:

* `tfx_distribute.pipelines`: the declarative pipeline, its targets and the command
  line.
* `tfx_distribute.components`: TFX components and the launchers of training clusters.
* `tfx_distribute.trainer_module`: the program that every training process runs.

Importing this package imports nothing else, so that the command line starts at once.

Attributes:
  __version__: Version of the package. setup.py reads it from this file.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
