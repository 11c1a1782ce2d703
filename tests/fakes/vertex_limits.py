"""Refuses what the protos of Vertex AI allow, and its documented limits do not.

Source: https://cloud.google.com/vertex-ai/docs/training/configure-compute
"""

import re
from collections.abc import Iterator
from typing import Any

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

REDUCTION_SERVER = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
Errors = Iterator[str]

_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_NETWORK = re.compile(r"projects/[0-9]+/global/networks/[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_CRON = re.compile(r"((CRON_)?TZ=[A-Za-z0-9_/+-]+ )?[\w*/,-]+( [\w*/,-]+){4}")
_KINDS = {"INT": "intValue", "DOUBLE": "doubleValue", "STRING": "stringValue"}


def custom_job_errors(job: types.CustomJob, location: str) -> Errors:
    """Yields what is wrong with a custom job."""
    spec = job.job_spec
    pools = list(spec.worker_pool_specs)
    yield from _job_errors(job, spec.network, location)
    if not 1 <= len(pools) <= 4:
        yield "there are 1 to 4 worker pools"
    for number, pool in enumerate(pools):
        if number == 0 or pool != types.WorkerPoolSpec():
            yield from (f"worker_pool_specs[{number}]: {error}" for error in _pool_errors(pool, number, len(pools)))
    if "max_wait_duration" in spec.scheduling and spec.scheduling.strategy.name != "FLEX_START":
        yield "max_wait_duration is only for FLEX_START"
    if spec.scheduling.strategy.name in ("SPOT", "FLEX_START") and any(p.machine_spec.reservation_affinity for p in pools):
        yield f"{spec.scheduling.strategy.name} does not consume reservations"
    if spec.tensorboard and not spec.service_account:
        yield "service_account must be specified when tensorboard is"


def _pool_errors(pool: types.WorkerPoolSpec, number: int, pools: int) -> Errors:
    machine, container, disk = pool.machine_spec, pool.container_spec, pool.disk_spec
    names = [variable.name for variable in container.env]
    if (number == 0 and pool.replica_count != 1) or pool.replica_count < 1:
        yield "replica_count is 1 in the first pool, and at least 1 in others"
    if not container.image_uri:
        yield "container_spec.image_uri is required"
    if container.image_uri == REDUCTION_SERVER and (number != 2 or container.command or container.args):
        yield "Reduction Server is for the third pool, without command and args"
    if len(set(names)) != len(names) or len(names) > 100 or not all(map(str.isidentifier, names)):
        yield "env has at most 100 unique C identifiers"
    if not machine.machine_type:
        yield "machine_spec.machine_type is required"
    if bool(machine.accelerator_type) != (machine.accelerator_count > 0):
        yield "both accelerator_type and accelerator_count are specified, or none"
    if machine.machine_type.startswith("ct") != bool(machine.tpu_topology) or (machine.tpu_topology and pools > 1):
        yield "tpu_topology is for TPU machines, in the only pool"
    if disk.boot_disk_size_gb and not 100 <= disk.boot_disk_size_gb <= 64000:
        yield "boot_disk_size_gb is from 100 to 64000"


def _job_errors(job: types.CustomJob | types.PipelineJob, network: str, location: str) -> Errors:
    if not 1 <= len(job.display_name) <= 128:
        yield "display_name is required, with at most 128 characters"
    if len(job.labels) > 64 or not all(map(_LABEL.fullmatch, [*job.labels, *job.labels.values()])):
        yield "labels: at most 64, of lowercase letters, numbers, dashes and underscores"
    if network and not _NETWORK.fullmatch(network):
        yield "network is of the form projects/NUMBER/global/networks/NETWORK"
    if job.encryption_spec and f"/locations/{location}/" not in job.encryption_spec.kms_key_name:
        yield f"encryption_spec.kms_key_name is not a key in {location}"


def pipeline_job_errors(job: types.PipelineJob, location: str) -> Errors:
    """Yields what is wrong with a pipeline job."""
    yield from _job_errors(job, job.network, location)
    document: dict[str, Any] = json_format.MessageToDict(types.PipelineJob.pb(job))
    spec, config = document.get("pipelineSpec", {}), document.get("runtimeConfig", {})
    if not config.get("gcsOutputDirectory", "").startswith("gs://"):
        yield "runtime_config.gcs_output_directory is required"
    try:
        json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
        json_format.ParseDict(spec["deploymentSpec"], pipeline_spec_pb2.PipelineDeploymentConfig())
        declared = spec["root"].get("inputDefinitions", {}).get("parameters", {})
        values = config.get("parameters", {})
        if set(values) != set(declared):
            yield f"the parameters are {sorted(declared)}, not {sorted(values)}"
        for name in set(values) & set(declared):
            if _KINDS[declared[name]["type"]] not in values[name]:
                yield f"parameter {name} is of type {declared[name]['type']}"
    except (json_format.ParseError, KeyError) as error:
        yield f"cannot parse pipeline_spec of schema 2.0.0: {error!r}"


def schedule_errors(schedule: types.Schedule, location: str) -> Errors:
    """Yields what is wrong with a schedule."""
    if not _CRON.fullmatch(schedule.cron):
        yield f"invalid cron: {schedule.cron}"
    if schedule.max_concurrent_run_count < 1:
        yield "max_concurrent_run_count is positive"
    yield from pipeline_job_errors(schedule.create_pipeline_job_request.pipeline_job, location)
