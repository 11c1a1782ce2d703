"""Finds the buckets that a pipeline uses on Vertex AI, and how. Pure."""

from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, PipelineSpec


def bucket_of(address: str) -> str:
    """Returns the name of the bucket in an address; empty for other addresses.

    ```python
    bucket_of("gs://bucket/folder")  # "bucket"
    ```
    """
    return address.removeprefix("gs://").partition("/")[0] if address.startswith("gs://") else ""


def find_buckets(spec: PipelineSpec, settings: VertexSettings) -> dict[str, bool]:
    """Returns bucket -> True if the run writes to it, that of `pipeline_root` first.

    Args:
      spec: The pipeline.
      settings: Settings of Vertex AI.
    """
    name, source = spec.data.source
    base_model = spec.trainer.base_model
    read = (
        source if name != "example_gen" else "",
        spec.data.schema_file,
        "" if base_model == LATEST_BLESSED else base_model,
    )
    beam = (spec.beam.temp_location, spec.beam.staging_location) if spec.beam.runner == "dataflow" else ()
    written = (settings.pipeline_root, spec.push.directory if spec.push else "", *beam)
    buckets = {bucket_of(address): True for address in written if address}
    for address in read:
        if address:
            buckets.setdefault(bucket_of(str(address)), False)
    buckets.pop("", None)
    return buckets
