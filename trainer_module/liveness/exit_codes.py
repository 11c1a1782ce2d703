"""Defines exit codes of training processes.

1 to 127 are final; after 128 or more, as after a signal, the training is started again.
The numbers are those of the Training Operator's `restartPolicy: ExitCode`. Source:
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
(Exit Code).

Children of the fork server end with `DONE` instead of 0 when they have done their part:
user code may call `os._exit(0)` before. A last report cannot tell this, since it is
missing if the disk is full.
"""

import signal

FAILED = 1
ABANDONED = 3  # no pipeline step follows the training any more
DONE = 113  # only between the fork server and its children
OUT_OF_MEMORY = 128 + signal.SIGKILL  # as when the kernel kills a process for it
PEER_LOST = 128 + signal.SIGUSR1  # reserved by the Training Operator for programs that want a retry
STORAGE_OUTAGE = 128 + signal.SIGUSR2
NO_PROGRESS = 128 + signal.SIGALRM  # the main thread made none for `progress_timeout_secs`
PREEMPTED = 128 + signal.SIGTERM
LEFT_EARLY = 256  # reported for a child that ends with 0; not an exit code
FINAL = range(1, 128)


def is_final(status: int) -> bool:
    """Returns True if another try would fail too.

    `status` is a process's exit code, minus the number of the signal that ended it, or
    `LEFT_EARLY`.
    """
    return status in FINAL or status == LEFT_EARLY


def to_fork_server(code: int) -> int:
    """Returns the exit code of a fork server's child for its exit code elsewhere."""
    return code or DONE


def from_child(status: int) -> int:
    """Returns the status that the fork server reports for a child.

    It is 0 if the child has done its part, `LEFT_EARLY` if it has ended with 0 before
    that, else `status`: its exit code, or minus the number of the signal that ended it.
    """
    return {DONE: 0, 0: LEFT_EARLY}.get(status, status)
