"""Defines exit codes of training processes.

1 to 127 are final; after 128 or more, as after a signal, the training is started again.
The numbers are those of the Training Operator's `restartPolicy: ExitCode`. Source:
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/
(Exit Code).
"""

import signal

FAILED = 1
ABANDONED = 3  # no pipeline step follows the training any more
OUT_OF_MEMORY = 128 + signal.SIGKILL  # as when the kernel kills a process for it
PEER_LOST = 128 + signal.SIGUSR1  # reserved by the Training Operator for programs that want a retry
STORAGE_OUTAGE = 128 + signal.SIGUSR2
NO_PROGRESS = 128 + signal.SIGALRM  # the main thread made none for `progress_timeout_secs`
PREEMPTED = 128 + signal.SIGTERM
FINAL = range(1, 128)


def is_final(status: int) -> bool:
    """Returns True if another try would fail too.

    `status` is a process's exit code, or minus the number of the signal that ended it.
    """
    return status in FINAL
