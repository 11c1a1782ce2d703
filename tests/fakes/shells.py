"""Runs shell scripts in place of training processes, without TensorFlow."""

import os
import queue
import subprocess
import time


class Shells:
    """Starts and ends shell scripts, one for each task, as the fork server does."""

    def __init__(self, scripts):
        self._scripts, self._answers = scripts, []
        self._running = {}

    def start(self, task, job, log, environment, imports_tensorflow):
        self._running[task] = subprocess.Popen(["/bin/sh", "-c", self._scripts[task]], start_new_session=True)
        self._answers.append({"started": task, "pid": self._running[task].pid})

    def signal(self, task, number):
        if task in self._running:
            os.killpg(self._running[task].pid, number)

    def next_answer(self, timeout):
        for task, process in list(self._running.items()):
            if not self._answers and process.poll() is not None:
                del self._running[task]
                self._answers.append({"ended": task, "pid": process.pid, "status": process.returncode})
        if not self._answers:
            time.sleep(timeout)
            raise queue.Empty
        return self._answers.pop(0)
