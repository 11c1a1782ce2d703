"""Defines exit codes of training processes.

They follow the Training Operator's `restartPolicy: ExitCode`: 1 to 127 are final; a
process that exits with 128 or more, as after a signal, is started again. Source:
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
(Exit Code).
"""

import signal

FAILED = 1
ABANDONED = 3  # no pipeline step follows the training any more
OUT_OF_MEMORY = 128 + signal.SIGKILL  # as when the kernel kills a process for it
PEER_LOST = 128 + signal.SIGUSR1  # reserved by the Training Operator for programs that want a retry
NO_PROGRESS = 128 + signal.SIGALRM  # the main thread made none for `progress_timeout_secs`
PREEMPTED = 128 + signal.SIGTERM
FINAL = range(1, 128)
# What processes of the fork server end with when they have done their part; it answers
# 0 for it. User code may call `os._exit(0)`, and a last report is missing if the disk
# is full.
DONE = 113
# Not an exit code, but what the fork server answers of a process that has left with 0
# before it has done its part.
LEFT = 256


def is_final(status: int) -> bool:
    """Returns True if another try would fail too.

    Args:
      status: A process's exit code, minus the number of the signal that ended it, or
        `LEFT`.
    """
    return status in FINAL or status == LEFT
