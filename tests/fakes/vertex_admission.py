"""Checks custom jobs, pipeline jobs and schedules as Vertex AI does.

Follows the documented contract: the SDK's types, and the pages distributed-training and
configure-compute of https://cloud.google.com/vertex-ai/docs/training. It is stricter
where those are silent: it refuses fields that the SDK's types do not have, accelerators
given by number, and machines that are not in the list.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from tfx_distribute.pipelines.machines.machine_types import MACHINE_TYPES

Document = dict[str, Any]
Errors = Iterator[tuple[str, str]]  # field, error
Message = TypeVar("Message")

REDUCTION_SERVER = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
JOB_ID = re.compile(r"[a-z][-a-z0-9]{0,127}")  # of a pipeline job

_REQUIRED = "Required field is not set."
_LABELS = (
    "There can be no more than 64 labels attached to a single resource. Label keys and values can only contain lowercase "
    "letters, numbers, dashes and underscores. Label keys must start with a letter or number, must be less than 64 "
    "characters in length."
)
_KEY, _VALUE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
_NETWORK = re.compile(r"projects/[a-z0-9:.-]+/global/networks/[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_BUCKET = re.compile(r"gs://[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9](/.*)?")
_ACCOUNT = re.compile(r"[^@\s]+@[^@\s]+")
_CRON = re.compile(r"((CRON_)?TZ=[A-Za-z0-9_/+-]+ )?[\w*/,-]+( [\w*/,-]+){4}")
_MACHINES = {  # accelerator -> machines that have it
    **dict.fromkeys(("NVIDIA_TESLA_P4", "NVIDIA_TESLA_P100", "NVIDIA_TESLA_V100", "NVIDIA_TESLA_T4"), ("n1-",)),
    "NVIDIA_L4": ("g2-",),
    "NVIDIA_TESLA_A100": ("a2-highgpu-", "a2-megagpu-"),
    "NVIDIA_A100_80GB": ("a2-ultragpu-",),
    "NVIDIA_H100_80GB": ("a3-highgpu-",),
    "NVIDIA_H100_MEGA_80GB": ("a3-megagpu-",),
    "NVIDIA_H200_141GB": ("a3-ultragpu-",),
    "NVIDIA_B200": ("a4-highgpu-",),
    "NVIDIA_GB200": ("a4x-highgpu-",),
    "TPU_V2": ("cloud-tpu",),
    "TPU_V3": ("cloud-tpu",),
}
_BUILT_IN = re.compile(r"(a[234]|a4x|g[24])-.*|cloud-tpu")  # machines with a built-in accelerator
_TYPES: dict[str, tuple[type, ...]] = {
    "NUMBER_INTEGER": (int, float),
    "NUMBER_DOUBLE": (int, float),
    "STRING": (str,),
    "BOOLEAN": (bool,),
    "LIST": (list,),
    "STRUCT": (dict,),
}
_PRIMITIVES = {"INT": "intValue", "DOUBLE": "doubleValue", "STRING": "stringValue"}  # of version 2.0.0


def parse(kind: type[Message], body: bytes) -> Message:
    """Reads a message.

    Raises:
      ValueError: The text is not a message of this type, or has unknown fields.
    """
    try:
        if not isinstance(json.loads(body), dict):
            raise ValueError("Root element must be a message.")
        return kind.from_json(body.decode(), ignore_unknown_fields=False)  # type: ignore[attr-defined]
    except (ValueError, json_format.ParseError) as error:
        raise ValueError(f"Invalid JSON payload received. {error}") from error


def custom_job_errors(job: types.CustomJob, location: str) -> Errors:
    """Yields the errors of a custom job."""
    if not job.display_name:
        yield "display_name", _REQUIRED
    yield from _resource_errors(job, location)
    spec, path = job.job_spec, "job_spec"
    pools = list(spec.worker_pool_specs)
    if not pools:
        yield f"{path}.worker_pool_specs", _REQUIRED
    if len(pools) > 4:
        yield f"{path}.worker_pool_specs", "There can be no more than 4 worker pools."
    for number, pool in enumerate(pools):
        if number == 0 or pool != types.WorkerPoolSpec():
            yield from _pool_errors(pool, number, len(pools), f"{path}.worker_pool_specs[{number}]")
    yield from _scheduling_errors(spec.scheduling, pools, f"{path}.scheduling")
    yield from _account_errors(spec, f"{path}.")
    if spec.base_output_directory and not _BUCKET.fullmatch(spec.base_output_directory.output_uri_prefix):
        yield f"{path}.base_output_directory.output_uri_prefix", "Must be a Cloud Storage URI: gs://BUCKET/PREFIX."
    if spec.tensorboard:
        if not re.fullmatch(rf"projects/[^/]+/locations/{location}/tensorboards/[^/]+", spec.tensorboard):
            form = "projects/PROJECT/locations/LOCATION/tensorboards/TENSORBOARD, in the location of the job"
            yield f"{path}.tensorboard", f"Must be of the form {form}."
        if not spec.service_account:
            yield f"{path}.service_account", "Service account must be specified when tensorboard is."


def _pool_errors(pool: types.WorkerPoolSpec, number: int, pools: int, path: str) -> Errors:
    if number == 0 and pool.replica_count != 1:
        yield f"{path}.replica_count", "The first worker pool has exactly 1 replica."
    elif pool.replica_count < 1:
        yield f"{path}.replica_count", "Must be at least 1."
    container, package = pool.container_spec, pool.python_package_spec
    if not container and not package:
        yield f"{path}.task", "One of `container_spec` and `python_package_spec` is required."
    if container:
        if not container.image_uri:
            yield f"{path}.container_spec.image_uri", _REQUIRED
        if container.image_uri == REDUCTION_SERVER and number != 2:
            yield f"{path}.container_spec.image_uri", "Reduction Server is only for the third worker pool."
        if container.image_uri == REDUCTION_SERVER and (container.command or container.args):
            yield f"{path}.container_spec", "Reduction Server takes neither command nor args."
        yield from _env_errors(container.env, f"{path}.container_spec.env")
    if package:
        for field in ("executor_image_uri", "package_uris", "python_module"):
            if not getattr(package, field):
                yield f"{path}.python_package_spec.{field}", _REQUIRED
        yield from _env_errors(package.env, f"{path}.python_package_spec.env")
    yield from _machine_errors(pool.machine_spec, number, pools, f"{path}.machine_spec")
    disk = pool.disk_spec
    if disk.boot_disk_type not in ("", "pd-ssd", "pd-standard", "hyperdisk-balanced"):
        yield f"{path}.disk_spec.boot_disk_type", f'Boot disk type "{disk.boot_disk_type}" is not supported.'
    if disk.boot_disk_size_gb and not 100 <= disk.boot_disk_size_gb <= 64000:
        yield f"{path}.disk_spec.boot_disk_size_gb", "Must be from 100 to 64000."
    for mount in pool.nfs_mounts:
        if not (mount.server and mount.path.startswith("/") and mount.mount_point):
            yield f"{path}.nfs_mounts", "A mount has a server, a path that starts with / and a mount_point."


def _env_errors(env: Any, path: str) -> Errors:
    names = [variable.name for variable in env]
    if len(names) > 100:
        yield path, "There can be no more than 100 environment variables."
    if len(set(names)) != len(names):
        yield path, "EnvVar names must be unique."
    for number, variable in enumerate(env):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable.name):
            yield f"{path}[{number}].name", "Must be a valid C identifier."
        if not variable.value:
            yield f"{path}[{number}].value", _REQUIRED


def _machine_errors(spec: types.MachineSpec, number: int, pools: int, path: str) -> Errors:
    machine, kind, count = spec.machine_type, spec.accelerator_type, spec.accelerator_count
    known = isinstance(kind, types.AcceleratorType)  # the SDK leaves numbers without a name unchanged
    if not machine:
        yield f"{path}.machine_type", _REQUIRED
    elif machine not in MACHINE_TYPES:
        yield f"{path}.machine_type", f'Machine type "{machine}" is not supported.'
    if bool(kind) != (count > 0) or count < 0:
        yield f"{path}.accelerator_type", "Both `accelerator_type` and `accelerator_count` should be specified or none."
    elif not known or (kind and not machine.startswith(_MACHINES.get(kind.name, ()))):
        name = kind.name if known else kind
        yield f"{path}.accelerator_type", f'Accelerator "{name}" is not supported for machine type "{machine}"'
    elif not kind and _BUILT_IN.fullmatch(machine):
        yield f"{path}.accelerator_type", f'An accelerator is required for machine type "{machine}"'
    else:
        of_machine = re.search(r"-(\d+)g$", machine)
        if of_machine and int(of_machine[1]) != count:
            yield f"{path}.accelerator_count", f'Machine type "{machine}" has {of_machine[1]} accelerators, not {count}.'
    if machine.startswith("ct") != bool(spec.tpu_topology):
        yield f"{path}.tpu_topology", "TPU machine types from v4 on have a topology, and no others have."
    if spec.tpu_topology and not re.fullmatch(r"\d+x\d+(x\d+)?", spec.tpu_topology):
        yield f"{path}.tpu_topology", f'TPU topology "{spec.tpu_topology}" is not supported.'
    if spec.tpu_topology and (number or pools > 1):
        yield f"{path}.tpu_topology", "A TPU topology is only for the first worker pool, which is the only one then."
    affinity, of = spec.reservation_affinity, types.ReservationAffinity.Type
    affinity_type = affinity.reservation_affinity_type if affinity else of.NO_RESERVATION
    if not isinstance(affinity_type, of) or affinity_type == of.TYPE_UNSPECIFIED:
        yield f"{path}.reservation_affinity.reservation_affinity_type", _REQUIRED
    elif affinity_type == of.SPECIFIC_RESERVATION:
        if affinity.key != "compute.googleapis.com/reservation-name":
            yield f"{path}.reservation_affinity.key", "Must be compute.googleapis.com/reservation-name."
        for name in list(affinity.values) or [""]:
            if not re.fullmatch(r"projects/[^/]+/zones/[^/]+/reservations/[^/]+", name):
                yield f"{path}.reservation_affinity.values", "Must be projects/PROJECT/zones/ZONE/reservations/NAME."
    elif affinity and (affinity.key or affinity.values):
        yield f"{path}.reservation_affinity.key", "Only a specific reservation has a key and values."


def _scheduling_errors(scheduling: types.Scheduling, pools: list[types.WorkerPoolSpec], path: str) -> Errors:
    strategies = types.Scheduling.Strategy
    if not isinstance(scheduling.strategy, strategies):
        yield f"{path}.strategy", f"Strategy {scheduling.strategy} is not known."
    if "timeout" in scheduling and scheduling.timeout.total_seconds() <= 0:
        yield f"{path}.timeout", "Must be positive."
    if "max_wait_duration" in scheduling:
        if scheduling.strategy != strategies.FLEX_START:
            yield f"{path}.max_wait_duration", "Is only for the strategy FLEX_START."
        if scheduling.max_wait_duration.total_seconds() < 0:
            yield f"{path}.max_wait_duration", "Must not be negative."
    if scheduling.strategy in (strategies.SPOT, strategies.FLEX_START):
        of = types.ReservationAffinity.Type
        affinities = [pool.machine_spec.reservation_affinity.reservation_affinity_type for pool in pools]
        if {of.ANY_RESERVATION, of.SPECIFIC_RESERVATION}.intersection(affinities):
            yield f"{path}.strategy", f"{scheduling.strategy.name} does not consume reservations."


def _resource_errors(job: types.CustomJob | types.PipelineJob, location: str) -> Errors:
    """Yields errors about fields that all jobs have."""
    if len(job.display_name) > 128:
        yield "display_name", "Must be no more than 128 characters long."
    valid = [key for key, value in job.labels.items() if _KEY.fullmatch(key) and _VALUE.fullmatch(value)]
    if len(job.labels) > 64 or len(valid) < len(job.labels):
        yield "labels", _LABELS
    if job.encryption_spec:
        name = job.encryption_spec.kms_key_name
        if not re.fullmatch(rf"projects/[^/]+/locations/{location}/keyRings/[^/]+/cryptoKeys/[^/]+", name):
            form = "projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY, in the location of the resource"
            yield "encryption_spec.kms_key_name", f"Must be of the form {form}."


def _account_errors(spec: types.CustomJobSpec | types.PipelineJob, path: str) -> Errors:
    if spec.service_account and not _ACCOUNT.fullmatch(spec.service_account):
        yield f"{path}service_account", "Must be the email address of a service account."
    if spec.network and not _NETWORK.fullmatch(spec.network):
        yield f"{path}network", "Must be of the form projects/PROJECT/global/networks/NETWORK."
    if spec.reserved_ip_ranges and not spec.network:
        yield f"{path}reserved_ip_ranges", "Must not be specified without network."


def pipeline_job_errors(job: types.PipelineJob, location: str) -> Errors:
    """Yields the errors of a pipeline job."""
    yield from _resource_errors(job, location)
    yield from _account_errors(job, "")
    if not _BUCKET.fullmatch(job.runtime_config.gcs_output_directory):
        yield "runtime_config.gcs_output_directory", "Must be a Cloud Storage URI: gs://BUCKET/PREFIX."
    document = json_format.MessageToDict(types.PipelineJob.pb(job))
    spec = document.get("pipelineSpec") or {}
    if not spec:
        yield "pipeline_spec", _REQUIRED
        return
    try:
        json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
        json_format.ParseDict(spec.get("deploymentSpec", {}), pipeline_spec_pb2.PipelineDeploymentConfig())
    except (json_format.ParseError, AttributeError, TypeError) as error:
        yield "pipeline_spec", f"Failed to parse the pipeline spec: {error}"
        return
    yield from _pipeline_spec_errors(spec)
    yield from _parameter_errors(spec, document["runtimeConfig"])


def _pipeline_spec_errors(spec: Document) -> Errors:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,127}", spec.get("pipelineInfo", {}).get("name", "")):
        yield "pipeline_spec.pipeline_info.name", "Must match [a-z0-9][a-z0-9-]{0,127}."
    if spec.get("schemaVersion") not in ("2.0.0", "2.1.0"):
        yield "pipeline_spec.schema_version", f"Unsupported schema version: {spec.get('schemaVersion', '')}."
    components, executors = spec.get("components", {}), spec.get("deploymentSpec", {}).get("executors", {})
    if not spec.get("root", {}).get("dag", {}).get("tasks"):
        yield "pipeline_spec.root.dag.tasks", _REQUIRED
    for where, component in (("root", spec.get("root", {})), *components.items()):
        if "executorLabel" in component and component["executorLabel"] not in executors:
            yield f"pipeline_spec.components[{where}]", f"There is no executor {component['executorLabel']}."
        for task in component.get("dag", {}).get("tasks", {}).values():
            if task.get("componentRef", {}).get("name") not in components:
                yield f"pipeline_spec.components[{where}]", f"There is no component {task.get('componentRef')}."


def _parameter_errors(spec: Document, config: Document) -> Errors:
    old = spec.get("schemaVersion") == "2.0.0"
    field, other = ("parameters", "parameterValues") if old else ("parameterValues", "parameters")
    declared = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    values = config.get(field, {})
    if config.get(other):
        yield f"runtime_config.{other}", f"Pipelines of schema version {spec.get('schemaVersion')} have {field}."
    for name in sorted(set(values) - set(declared)):
        yield f"runtime_config.{field}[{name}]", "The pipeline has no such parameter."
    for name, parameter in declared.items():
        parameter_type = parameter.get("type" if old else "parameterType", "")
        if name not in values:
            if "defaultValue" not in parameter and not parameter.get("isOptional"):
                yield f"runtime_config.{field}[{name}]", f"The parameter {name} has no default value and is not given."
        elif not (_PRIMITIVES.get(parameter_type) in values[name] if old else _is_of(values[name], parameter_type)):
            yield f"runtime_config.{field}[{name}]", f"The parameter {name} is of type {parameter_type}."


def _is_of(value: Any, parameter_type: str) -> bool:
    if not isinstance(value, _TYPES.get(parameter_type, ())) or (isinstance(value, bool) and parameter_type != "BOOLEAN"):
        return False
    return parameter_type != "NUMBER_INTEGER" or float(value).is_integer()


def schedule_errors(schedule: types.Schedule, parents: tuple[str, ...], location: str) -> Errors:
    """Yields the errors of a schedule, whose requests need one of these parents."""
    if not schedule.display_name:
        yield "schedule.display_name", _REQUIRED
    if len(schedule.display_name) > 128:
        yield "schedule.display_name", "Must be no more than 128 characters long."
    if not _CRON.fullmatch(schedule.cron):
        yield "schedule.cron", f'Invalid cron: "{schedule.cron}".'
    if schedule.max_concurrent_run_count < 1:
        yield "schedule.max_concurrent_run_count", "Must be positive."
    if schedule.max_run_count < 0:
        yield "schedule.max_run_count", "Must not be negative."
    if schedule.start_time and schedule.end_time and schedule.end_time <= schedule.start_time:
        yield "schedule.end_time", "Must be after start_time."
    request = schedule.create_pipeline_job_request
    if not request:
        yield "schedule.request", _REQUIRED
        return
    if request.parent not in parents:
        yield "schedule.create_pipeline_job_request.parent", f"Must be {parents[0]}."
    for field, message in pipeline_job_errors(request.pipeline_job, location):
        yield f"schedule.create_pipeline_job_request.pipeline_job.{field}", message
