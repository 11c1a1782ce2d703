"""Trains over ssh, on machines that share a folder: a launcher of another package."""

import shlex
import subprocess
from dataclasses import dataclass

from tfx_distribute.components.launchers.launcher import Failure, Launcher, LauncherSettings, State
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import TF_CONFIG, Cluster, replicas_of_roles
from tfx_distribute.trainer_module.liveness import exit_codes


@dataclass(frozen=True)
class SshSettings(LauncherSettings):
    hosts: tuple[str, ...] = ()
    python: str = "python3"
    ssh: tuple[str, ...] = ("ssh", "-tt")  # with a terminal, a process ends with its connection
    LAUNCHER = "ssh"


class SshLauncher(Launcher[SshSettings]):
    Settings = SshSettings

    def request(self, training):
        roles = replicas_of_roles(training.distribution)
        if sum(roles.values()) > len(self.settings.hosts):
            raise ConfigurationError(f"hosts: {len(self.settings.hosts)} are too few for {sum(roles.values())} processes")
        cluster = Cluster.of(roles, (f"{host}:2222" for host in self.settings.hosts))
        commands = {}
        for task, host in zip(cluster.tasks, self.settings.hosts, strict=False):
            environment = {**training.environment, TF_CONFIG: cluster.tf_config(task)}
            variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
            module = f"-m tfx_distribute.trainer_module --job {shlex.quote(training.job_address)}"
            commands[str(task)] = [*self.settings.ssh, host, f"env {variables} {self.settings.python} {module}"]
        return commands

    def start(self, request, has_result):
        self.processes = {task: subprocess.Popen(command) for task, command in request.items() if not has_result}
        return not has_result

    def state(self):
        codes = {task: process.poll() for task, process in self.processes.items()}
        failed = {code: task for task, code in codes.items() if code}
        if not failed and codes["chief"] is None:
            return State("running", f"training on {', '.join(self.settings.hosts)}")
        self.stop(has_time=True)
        if not failed:
            return State("succeeded")
        code = max(failed, key=exit_codes.is_final)  # others end because of it
        return State("failed", failure=Failure(f"{failed[code]}: exit code {code}", exit_codes.is_final(code)))

    def stop(self, has_time):
        for process in self.processes.values():
            process.terminate()
            process.wait()
