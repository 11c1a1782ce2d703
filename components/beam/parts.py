"""Tells into how many parts to divide the work of a Beam pipeline."""

import os
from collections.abc import Sequence

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

MAX_PARTS = 8  # of a file, processed in parallel; each part reads the whole file


def num_processes(beam_pipeline_args: Sequence[str]) -> int:
    """Returns how many processes a Beam pipeline has at least.

    That is 1 for the direct runner in memory, its number of workers if it uses several
    processes, and MAX_PARTS for any other runner.
    """
    options = PipelineOptions(list(beam_pipeline_args))
    if (options.view_as(StandardOptions).runner or "DirectRunner").rpartition(".")[2] != "DirectRunner":
        return MAX_PARTS
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "in_memory":
        return 1
    return direct.direct_num_workers or os.cpu_count() or 1
