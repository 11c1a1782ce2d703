"""What runs in the container of a pipeline's step: `python -m tfx_distribute.components.container`."""
