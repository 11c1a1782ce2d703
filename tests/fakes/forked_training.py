"""Makes fork servers of trainings forks of a process that has imported TensorFlow.

The product starts one for each run of a pipeline, which imports TensorFlow while others
import TFX: there would be little to gain from forks of the latter alone.
"""

import contextlib
import os
import socket
import subprocess
import types
from collections.abc import Mapping
from typing import Any

MODULES = (
    "tensorflow",
    "tfx_distribute.trainer_module.process",
    "tfx_distribute.trainer_module.training.converted_ahead:convert",
)


def environment(start: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of fork servers for Keras 2 in that of their launcher."""
    from tfx_distribute.components.launchers.local import loopback
    from tfx_distribute.trainer_module import tpu_library
    from tfx_distribute.trainer_module.job.training_job import keras_environment

    return {**start, **tpu_library.NOT_LOADED, **keras_environment(2), **loopback.environment(start)}


def install(control: socket.socket, start: Mapping[str, str]) -> None:
    """Lets forks of this process have their fork servers forked.

    All others that they start, and those with another environment, are new processes.

    Args:
      control: Where to ask for a fork.
      start: The environment that this process was started with.
    """
    from forked import fork, read_early

    from tfx_distribute.components.launchers.local import fork_client
    from tfx_distribute.components.module_command import module_command

    control.set_inheritable(False)
    expected = environment(read_early(start))
    added = set(os.environ) - set(start)  # by Python and TensorFlow

    def popen(words: list[str], *, stdin: int, stdout: int, stderr: Any, env: dict[str, str], **options: Any) -> Any:
        given = {name: value for name, value in read_early(env).items() if name not in added - set(expected)}
        if words != module_command("tfx_distribute.trainer_module.fork_server") or given != expected:
            return subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, env=env, **options)
        read_requests, write_requests = os.pipe()
        read_answers, write_answers = os.pipe()
        with contextlib.ExitStack() as stack:
            for descriptor in (read_requests, write_answers):
                stack.callback(os.close, descriptor)
            streams = (read_requests, write_answers, stderr.fileno())
            process: Any = fork(control, words[1:], env, os.getcwd(), streams, ends_session=False)
        process.stdin, process.stdout = os.fdopen(write_requests, "wb", 0), os.fdopen(read_answers, "rb")
        return process

    fork_client.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": popen})  # type: ignore[assignment]
