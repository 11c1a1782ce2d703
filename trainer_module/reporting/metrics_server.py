"""Serves the progress of training processes as Prometheus text, on request.

The format is version 0.0.4 of
https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format.
"""

import http.server
import math
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.reporting.progress import Progress

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

    def to_text(self) -> str:
        """Returns the metrics of all processes in Prometheus's text format."""
        with self._lock:
            last = dict(sorted(self._last.items()))
        return format_text(last)


def _complete(progress: Progress, before: Progress) -> Progress:
    """Returns a report with the numbers of the one before that it does not have."""
    names = ("train_steps", "examples_per_second", "metrics", "epoch", "epochs", "learning_rate", "seconds", "counters")
    return replace(progress, **{name: getattr(before, name) for name in names if not getattr(progress, name)})


def format_text(reports: Mapping[ClusterTask, tuple[float, Progress]]) -> str:
    """Formats reports in Prometheus's text format.

    Args:
      reports: Process -> time and contents of its last report.
    """
    return "".join(f"{line}\n" for line in _lines(reports))


def _lines(reports: Mapping[ClusterTask, tuple[float, Progress]]) -> Iterator[str]:
    for name, (help_text, read) in _GAUGES.items():
        values = {_labels(task): read(progress) for task, (_, progress) in reports.items()}
        yield from _family(name, "gauge", help_text, values)
    metrics = {
        _labels(task, name=name): value
        for task, (_, progress) in reports.items()
        for name, value in (progress.metrics or {}).items()
    }
    yield from _family("metric", "gauge", "Last value of the loss and of each metric.", metrics)
    seconds = {
        _labels(task, activity=activity): value
        for task, (_, progress) in reports.items()
        for activity, value in (progress.seconds or {}).items()
    }
    yield from _family("time_seconds_total", "counter", "Time of the process by activity.", seconds)
    times = {_labels(task): at for task, (at, _) in reports.items()}
    yield from _family("report_timestamp_seconds", "gauge", "Unix time of the last report.", times)


def _family(name: str, kind: str, help_text: str, values: Mapping[str, float | None]) -> Iterator[str]:
    known = {labels: value for labels, value in values.items() if value is not None}
    if known:
        yield f"# HELP {_PREFIX}{name} {help_text}"
        yield f"# TYPE {_PREFIX}{name} {kind}"
        yield from (f"{_PREFIX}{name}{labels} {_number(value)}" for labels, value in known.items())


def _labels(task: ClusterTask, **more: str) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in {"task": task.file_name, **more}.items())
    return f"{{{pairs}}}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self, address: str, port: int, handler: type[http.server.BaseHTTPRequestHandler]):
        if address == EVERY_ADDRESS and not socket.has_dualstack_ipv6():
            address = "0.0.0.0"  # noqa: S104 (the same)
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer's own also looks for a name of the address, which may take long.
        socketserver.TCPServer.server_bind(self)


def serve(metrics: Metrics, port: int, address: str = LOOPBACK) -> http.server.ThreadingHTTPServer:
    """Serves metrics at `/metrics` in a thread, until the process ends.

    Args:
      metrics: The metrics.
      port: Port to listen on; 0 for any free one.
      address: Address of IPv4 or IPv6 to listen on, or `EVERY_ADDRESS`.

    Raises:
      ConfigurationError: The port cannot be listened on.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10.0  # a client that sends nothing

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = metrics.to_text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing: a scrape is no event of the training."""

    try:
        server = _Server(address, port, Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"metrics_port: {address}:{port} cannot be listened on ({reason}); write another"
        ) from error
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()
    return server
