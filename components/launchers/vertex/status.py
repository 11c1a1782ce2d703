"""Interprets what Vertex AI reports about a CustomJob.

Pure functions, without requests to Vertex AI.
"""

import re
import signal

from google.cloud.aiplatform_v1.types import CustomJob, JobState
from google.rpc import code_pb2

from tfx_distribute.trainer_module.lifecycle import exit_codes

SUCCESS_STATES = (JobState.JOB_STATE_SUCCEEDED, JobState.JOB_STATE_PARTIALLY_SUCCEEDED)
END_STATES = (
    *SUCCESS_STATES,
    JobState.JOB_STATE_FAILED,
    JobState.JOB_STATE_CANCELLED,
    JobState.JOB_STATE_EXPIRED,
)

# How the service reports a replica that failed. If a signal ended it, the number is
# that of the signal in some cases, with the signal's name behind it.
_EXIT_CODE = re.compile(r"non-zero status of (\d+)(\(SIG\w+\))?")

# What the documentation calls transient, of the service and of processes. Source:
# https://cloud.google.com/vertex-ai/docs/training/understanding-training-service and
# https://cloud.google.com/vertex-ai/docs/training/use-spot-vms
_TRANSIENT_MESSAGE = re.compile(r"Resources are insufficient in region|STOCKOUT|Internal error", re.IGNORECASE)
_TRANSIENT_EXIT_CODES = (signal.SIGABRT, signal.SIGSEGV)  # 128 more in custom containers
_TRANSIENT_CODES = (code_pb2.INTERNAL, code_pb2.UNAVAILABLE, code_pb2.ABORTED)


def has_succeeded(job: CustomJob) -> bool:
    """Returns True if a job has ended with success."""
    return job.state in SUCCESS_STATES


def has_ended(job: CustomJob) -> bool:
    """Returns True if a job has ended, with or without success."""
    return job.state in END_STATES


def lacks_error(job: CustomJob) -> bool:
    """Returns True if a job has failed, and the service has not yet said why."""
    return bool(job.state == JobState.JOB_STATE_FAILED and not job.error.message and not job.error.code)


def may_retry(job: CustomJob) -> bool:
    """Returns True if another job may succeed where this one failed.

    A failure without any reason is one of the service: a process of ours that fails for
    good reports it, and an exit code is named.
    """
    if job.state != JobState.JOB_STATE_FAILED:
        return False
    if code := _EXIT_CODE.search(job.error.message):
        return bool(code[2]) or int(code[1]) in _TRANSIENT_EXIT_CODES or not exit_codes.is_final(int(code[1]))
    is_transient = bool(_TRANSIENT_MESSAGE.search(job.error.message)) or job.error.code in _TRANSIENT_CODES
    return is_transient or lacks_error(job)


def describe(job: CustomJob) -> str:
    """Describes the state of a job."""
    error = f" ({job.error.message})" if job.error.message else ""
    return f"{job.state.name.removeprefix('JOB_STATE_').lower()}{error}"


def describe_failure(job: CustomJob) -> str:
    """Describes why a job ended without success, for a sentence about the job."""
    if job.state == JobState.JOB_STATE_EXPIRED:
        return f"has waited, or run, for longer than allowed ({job.error.message or 'it has expired'})"
    if job.state == JobState.JOB_STATE_CANCELLED:
        return f"was cancelled: {job.error.message or 'by somebody'}"
    return f"failed: {job.error.message or 'no reason is given'}"
