"""Serves the progress of a training process to Prometheus, on request.

Few trainings are asked to, so `prometheus_client` is imported only then.
"""

import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

# Environment variables of a training process: the port to serve on, none by default;
# and the address to listen on. Whoever can connect can read the metrics.
PORT_VARIABLE = "TFX_DISTRIBUTE_METRICS_PORT"
ADDRESS_VARIABLE = "TFX_DISTRIBUTE_METRICS_ADDRESS"
LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = "::"  # those of IPv4 too

_PREFIX = "tfx_distribute_training_"
_GAUGES: Mapping[str, tuple[str, Callable[[Progress], float | None]]] = {
    "step": ("Training steps done, those of earlier tries included.", lambda progress: progress.step),
    "steps_planned": ("Training steps in total.", lambda progress: progress.train_steps or None),
    "epoch": ("Number of the epoch, from 1.", lambda progress: progress.epoch or None),
    "examples_per_second": ("Recent training speed of the process.", lambda progress: progress.examples_per_second or None),
    "learning_rate": ("Learning rate of the optimizer.", lambda progress: progress.learning_rate),
    "report_timestamp_seconds": ("Unix time of the last report.", lambda progress: time.time()),
    "stalled_seconds": ("Seconds without progress; 0 while there is some.", lambda progress: progress.stalled_secs),
}


def serve(reporter: Reporter, task: ClusterTask, port: int, address: str = LOOPBACK) -> "WSGIServer":
    """Serves a process's reports at `/metrics` in a thread, until the process ends.

    What a report lacks keeps its value. Port 0 is any free one.
    """
    from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

    registry = CollectorRegistry()
    name = task.file_name
    gauges = {key: Gauge(_PREFIX + key, help_text, ["task"], registry=registry) for key, (help_text, _) in _GAUGES.items()}
    metrics = Gauge(f"{_PREFIX}metric", "Last value of the loss and of each metric.", ["task", "name"], registry=registry)
    seconds = Counter(f"{_PREFIX}time_seconds", "Time of the process by activity.", ["task", "activity"], registry=registry)
    last_seconds: dict[str, float] = {}

    def add(progress: Progress) -> None:
        for key, (_, read) in _GAUGES.items():
            if (value := read(progress)) is not None:
                gauges[key].labels(name).set(value)
        for metric, value in progress.metrics.items():
            metrics.labels(name, metric).set(value)
        for activity, spent in progress.seconds.items():
            seconds.labels(name, activity).inc(max(spent - last_seconds.get(activity, 0.0), 0.0))
            last_seconds[activity] = spent

    reporter.listeners.append(add)
    if address == EVERY_ADDRESS and not socket.has_dualstack_ipv6():
        address = "0.0.0.0"  # noqa: S104 (the same)
    try:
        server, _ = start_http_server(port, address, registry)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"metrics_port: {address}:{port} cannot be listened on ({reason}); write another"
        ) from error
    return server
