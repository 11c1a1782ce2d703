"""Lists the kinds of jobs that can train on Kubernetes, the preferred one first."""

from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind
from tfx_distribute.components.launchers.kubernetes.jobset import JobSet
from tfx_distribute.components.launchers.kubernetes.tfjob import TFJob

JOB_KINDS: dict[str, JobKind] = {kind.name: kind for kind in (TFJob(), JobSet())}
"""Value of `training` -> kind."""


def get_shown(training: str) -> JobKind:
    """Returns the kind to show before a cluster was asked which it has.

    Args:
      training: Value of the setting.
    """
    return JOB_KINDS.get(training) or next(iter(JOB_KINDS.values()))
