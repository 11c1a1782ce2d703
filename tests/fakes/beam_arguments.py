"""Beam's arguments as a pipeline passes them.

Beam's own `DirectRunner`, the default without them, looks on the internet for another.
"""

from tfx_distribute.pipelines.spec.beam import Beam, make_pipeline_args

IN_MEMORY = make_pipeline_args(Beam(direct_num_workers=1))
TWO_PROCESSES = make_pipeline_args(Beam(direct_num_workers=2))
