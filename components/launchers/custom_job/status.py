"""Interprets what Vertex AI reports about a CustomJob.

Pure functions, without requests to Vertex AI.
"""

import re

from google.cloud.aiplatform_v1.types import CustomJob, JobState

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


def has_succeeded(job: CustomJob) -> bool:
    """Returns True if a job has ended with success."""
    return job.state in SUCCESS_STATES


def has_ended(job: CustomJob) -> bool:
    """Returns True if a job has ended, with or without success."""
    return job.state in END_STATES


def may_retry(job: CustomJob) -> bool:
    """Returns True if another job may succeed where this one failed."""
    code = _EXIT_CODE.search(job.error.message)
    if job.state != JobState.JOB_STATE_FAILED or not code:
        return False
    return bool(code[2]) or not exit_codes.is_final(int(code[1]))


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
