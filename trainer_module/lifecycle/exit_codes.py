"""Exit codes of training processes, as the Training Operator reads them with `restartPolicy: ExitCode`.

1 to 127 are final; a process that ended with 128 and more, which is what signals leave, is tried again. Source:
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/ (Exit Code).
"""

import signal

FAILED = 1
ABANDONED = 3  # nobody follows the training any more
OUT_OF_MEMORY = 128 + signal.SIGKILL  # as of a process that the kernel killed for it
PEER_LOST = 128 + signal.SIGUSR1  # what the Training Operator leaves to programs that want another try
NO_PROGRESS = 128 + signal.SIGALRM  # its main thread made none for `progress_timeout_secs`
PREEMPTED = 128 + signal.SIGTERM


def is_final(status: int) -> bool:
    """Whether another try would fail too.

    Args:
      status: An exit code, or minus the number of the signal that ended a process.
    """
    return 0 < status < 128
