"""Checks that buckets exist, and where they are. Pure."""

from collections.abc import Sequence

from tfx_distribute.pipelines.runners.finding import Finding
from tfx_distribute.pipelines.runners.vertex.doctor.check import Check, failed, passed, unknown
from tfx_distribute.pipelines.runners.vertex.doctor.rest import Answer, Request, quoted
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings

# Region's first part -> multi-region that may include it:
# https://cloud.google.com/storage/docs/locations
_MULTI_REGIONS = {"us": "US", "europe": "EU", "asia": "ASIA"}


def bucket(bucket_name: str, settings: VertexSettings, in_region: bool = False) -> Check:
    """Checks that a bucket exists.

    Args:
      bucket_name: Name of the bucket.
      settings: Settings of Vertex AI.
      in_region: True if it has to be in the run's region.
    """
    name = f"bucket gs://{bucket_name}"
    region = str(settings.region)

    def judge(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if answer.code == 404:
            command = f"gcloud storage buckets create gs://{bucket_name} --project={settings.project} --location={region}"
            return failed(name, "does not exist", f"correct its name, or run `{command}`")
        if not answer.is_ok:
            return unknown(name, answer, "storage.buckets.get")
        location = str(answer.document.get("location", "")).upper()
        if location == region.upper():
            return passed(name, f"is in {region}")
        if in_region:
            remedy = f"use a bucket of {region} for targets.vertex.pipeline_root"
            return failed(name, f"is in {location}, and a TensorBoard instance needs it in {region}", remedy)
        if location == _MULTI_REGIONS.get(region.partition("-")[0]):
            return passed(name, f"is in {location}, and the run in {region}")
        return passed(name, f"is in {location}; the run is in {region}, so reads cross regions, which is slow and is billed")

    return Check(name, (Request(f"https://storage.googleapis.com/storage/v1/b/{quoted(bucket_name)}"),), judge)
