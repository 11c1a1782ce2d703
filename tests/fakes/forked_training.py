"""Makes fork servers of trainings forks of a process that has imported TensorFlow.

The product starts one for each run of a pipeline, which imports TensorFlow while others
import TFX: there would be little to gain from forks of the latter alone.
"""

import contextlib
import os
import subprocess
import types
from pathlib import Path
from typing import Any

import forked
import importers

MODULES = ("tensorflow", "tfx_distribute.trainer_module.process")


def subprocess_for_fork_servers(folder: Path) -> types.SimpleNamespace:
    """Returns a `subprocess` for `fork_client`: fork servers of trainings are forks.

    Args:
      folder: Folder of the importers.
    """
    from tfx_distribute.components.module_command import module_command

    server = module_command("tfx_distribute.trainer_module.fork_server")

    def popen(words: list[str], *, stdin: int, stdout: int, stderr: Any, env: dict[str, str], **options: Any) -> Any:
        if words != [*server, "tfx_distribute.trainer_module.fork_preparation:prepare"]:
            return subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, env=env, **options)
        read_requests, write_requests = os.pipe()
        read_answers, write_answers = os.pipe()
        with contextlib.ExitStack() as stack:
            for descriptor in (read_requests, write_answers):
                stack.callback(os.close, descriptor)
            streams = (read_requests, write_answers, stderr.fileno())
            control = stack.enter_context(importers.control(folder, MODULES, env))
            process: Any = forked.fork(control, words[1:], env, os.getcwd(), streams, ends_session=False)
        process.stdin, process.stdout = os.fdopen(write_requests, "wb", 0), os.fdopen(read_answers, "rb")
        return process

    return types.SimpleNamespace(**{**vars(subprocess), "Popen": popen})
