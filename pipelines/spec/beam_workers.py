"""Checks how a job service of Beam starts workers, and formats it as Beam reads it."""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

EnvironmentType = Literal["DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK"]
Config = str | dict[str, Any]

ADDRESS = r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$"
WORKER_COMMAND = "tfx-distribute-beam-worker"
_LOOPBACK_HOSTS = re.compile(r"^(localhost|127\.[\d.]+|\[::1\])$")
_KEYS = {"PROCESS": "command", "EXTERNAL": "url"}


def check(environment_type: EnvironmentType, config: Config | None) -> None:
    """Checks that a way to start workers is complete.

    The message of the ValueError says what to write.
    """
    if environment_type == "LOOPBACK":
        if config is not None:
            raise ValueError("environment_config: LOOPBACK has none: its workers are in this process; leave it out")
        return
    if environment_type == "DOCKER":
        if isinstance(config, dict):
            raise ValueError("environment_config: DOCKER takes the name of an image; write it as text")
        return
    value = read_config(config).get(_KEYS[environment_type]) if config is not None else None
    shown = "is missing" if config is None else f"{config!r}"
    if environment_type == "PROCESS" and not (isinstance(value, str) and value.startswith("/")):
        raise ValueError(
            f"environment_config: {shown}: PROCESS needs the path of a program that starts a worker where the job service "
            f"runs; write such as /opt/venv/bin/{WORKER_COMMAND}, or {{command: PATH, env: {{NAME: VALUE}}}}"
        )
    if environment_type == "EXTERNAL" and not (isinstance(value, str) and re.match(ADDRESS, value)):
        raise ValueError(
            f"environment_config: {shown}: EXTERNAL needs the address of a worker pool, as the job service reaches it; "
            "write its HOST:PORT, such as localhost:50000"
        )


def is_loopback(endpoint: str) -> bool:
    """Returns True if the host of HOST:PORT is this machine."""
    return bool(_LOOPBACK_HOSTS.match(endpoint.rpartition(":")[0]))


def read_config(config: Config) -> Mapping[str, Any]:
    """Returns an `environment_config` as a mapping, however it is written."""
    if isinstance(config, dict):
        return config
    if config.lstrip().startswith("{"):
        try:
            return dict(json.loads(config))
        except ValueError as error:
            raise ValueError(f"environment_config: {config!r} is not JSON: {error}") from error
    return {"command": config, "url": config}


def format_config(environment_type: str | None, config: Config | None, python_path: str | None = None) -> str | None:
    """Returns an `environment_config` as Beam reads it.

    `python_path` is the `PYTHONPATH` of worker processes, unless the setting has one.
    """
    if config is None or environment_type == "DOCKER":
        return config if isinstance(config, str) else None
    if environment_type == "PROCESS":
        process = dict(read_config(config))
        process.pop("url", None)
        variables = {**({"PYTHONPATH": python_path} if python_path else {}), **process.pop("env", {})}
        return json.dumps({**process, "env": variables} if variables else process)
    return json.dumps(config) if isinstance(config, dict) else config
