"""Runs the contract of launchers with processes of this machine: shell scripts."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from launcher_harness import Act, Harness
from own_launcher import SshSettings
from programs import Programs
from running import is_running
from training import make_job

from tfx_distribute.components.launchers import registry
from tfx_distribute.components.launchers.launcher import Launcher, Restarts, Training
from tfx_distribute.components.launchers.local.launcher import LocalLauncher, LocalLauncherSettings
from tfx_distribute.trainer_module.job.training_job import Distribution, Outputs

# The line of `acts` whose number is that of this start, or the last.
SCRIPT = """#!/bin/sh
cd {folder}
echo $$ >> pids
case $(head -n $(wc -l < pids) acts | tail -n 1) in
  succeed) exit 0 ;;
  fail) kill -KILL $$ ;;
  break) exit 1 ;;
  run) exec sleep 600 ;;
esac
"""


class ProcessHarness(Harness):
    """Runs one process: a script that follows the acts."""

    SKIPPED: ClassVar[Mapping[str, str]] = {
        "a retry takes it over": "its processes end with the step that has started them",
        "another attempt takes the lease": "its processes end with the step that has started them",
        "it does not start in time": "its processes start at once",
    }

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self._folder, self._pids, self._script = folder, folder / "pids", folder / "script"
        self._pids.touch()
        self._script.write_text(SCRIPT.format(folder=folder))
        self._script.chmod(0o700)
        self.training = Training("digits-1", str(folder / "job.json"), Distribution(), {})

    def act(self, *acts: Act) -> None:
        (self._folder / "acts").write_text("".join(f"{act}\n" for act in acts))

    def num_starts(self) -> int:
        return len(self._pids.read_text().split())

    def is_running(self) -> bool:
        return any(is_running(int(pid)) for pid in self._pids.read_text().split())

    def close(self) -> None:
        for pid in self._pids.read_text().split():
            if is_running(int(pid)):
                os.kill(int(pid), signal.SIGKILL)


class LocalHarness(ProcessHarness):
    """Has a stand-in for the fork server start the script."""

    def make_launcher(self, restarts: Restarts) -> Launcher[Any]:
        server: Any = Programs({"chief-0": ["/bin/sh", str(self._script)]})
        settings = LocalLauncherSettings(log_dir=self._folder, server=server)
        outputs = Outputs("", "", str(self._folder / "result.json"))
        return LocalLauncher(settings, make_job(outputs=outputs), restarts)


class OwnHarness(ProcessHarness):
    """Has a launcher of another package run the script, in place of Python."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        super().__init__(folder, monkeypatch)
        installed = folder / "own_launcher-1.0.dist-info"
        installed.mkdir()
        (installed / "entry_points.txt").write_text("[tfx_distribute.launchers]\nssh = own_launcher:SshLauncher\n")
        monkeypatch.syspath_prepend(str(folder))

    def make_launcher(self, restarts: Restarts) -> Launcher[Any]:
        ssh = ("sh", "-c", 'eval "exec $2"', "ssh")
        settings = SshSettings("digits", hosts=("127.0.0.1",), python=str(self._script), ssh=ssh)
        return registry.make(registry.from_json(registry.to_json(settings)))
