"""Serves the progress of training processes to Prometheus, on request.

Few trainings are asked to, so `prometheus_client` is imported only then.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.reporting.progress import Progress

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import Metric

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
    "examples_per_second": ("Recent training speed of the process.", lambda progress: progress.examples_per_second),
    "learning_rate": ("Learning rate of the optimizer.", lambda progress: progress.learning_rate),
    "stalled_seconds": ("Seconds without progress; 0 while there is some.", lambda progress: progress.stalled_secs),
}


class Metrics:
    """Remembers the last report of each training process.

    ```python
    metrics = Metrics()
    metrics.add(CHIEF_TASK, progress)
    server = serve(metrics, 9400)
    ```
    """

    def __init__(self) -> None:
        self._last: dict[ClusterTask, tuple[float, Progress]] = {}
        self._lock = threading.Lock()

    def add(self, task: ClusterTask, progress: Progress) -> None:
        """Adds a report. What a process does not report again keeps its value."""
        with self._lock:
            before = self._last.get(task)
            if before and progress.phase != "start":  # which begins a new try
                progress = _complete(progress, before[1])
            self._last[task] = (time.time(), progress)

    def collect(self) -> "Iterator[Metric]":
        """Yields the metrics of all processes, for `prometheus_client`."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            last = {task.file_name: report for task, report in sorted(self._last.items())}
        for name, (help_text, read) in _GAUGES.items():
            family = GaugeMetricFamily(f"{_PREFIX}{name}", help_text, labels=["task"])
            for task, (_, progress) in last.items():
                value = read(progress)
                if value is not None:
                    family.add_metric([task], value)
            yield family
        metrics = GaugeMetricFamily(
            f"{_PREFIX}metric", "Last value of the loss and of each metric.", labels=["task", "name"]
        )
        seconds = CounterMetricFamily(
            f"{_PREFIX}time_seconds", "Time of the process by activity.", labels=["task", "activity"]
        )
        times = GaugeMetricFamily(f"{_PREFIX}report_timestamp_seconds", "Unix time of the last report.", labels=["task"])
        for task, (at, progress) in last.items():
            for name, value in progress.metrics.items():
                metrics.add_metric([task, name], value)
            for activity, spent in progress.seconds.items():
                seconds.add_metric([task, activity], spent)
            times.add_metric([task], at)
        yield from (metrics, seconds, times)


def _complete(progress: Progress, before: Progress) -> Progress:
    """Returns a report with the numbers of the one before that it does not have."""
    names = ("train_steps", "examples_per_second", "metrics", "epoch", "epochs", "learning_rate", "seconds", "counters")
    return replace(progress, **{name: getattr(before, name) for name in names if not getattr(progress, name)})


def serve(metrics: Metrics, port: int, address: str = LOOPBACK) -> "WSGIServer":
    """Serves metrics at `/metrics` in a thread, until the process ends.

    Port 0 is any free one. `address` is one of IPv4 or IPv6, or `EVERY_ADDRESS`. Raises
    ConfigurationError if the port cannot be listened on.
    """
    import prometheus_client

    registry = prometheus_client.CollectorRegistry()
    registry.register(metrics)
    if address == EVERY_ADDRESS and not socket.has_dualstack_ipv6():
        address = "0.0.0.0"  # noqa: S104 (the same)
    try:
        server, _ = prometheus_client.start_http_server(port, address, registry)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"metrics_port: {address}:{port} cannot be listened on ({reason}); write another"
        ) from error
    return server
