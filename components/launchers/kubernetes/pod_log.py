"""Passes on what the chief's pod prints, while it runs."""

import collections
import contextlib
import threading
import time
from collections.abc import Iterable

import urllib3
from absl import logging
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tfx_distribute.components.launchers.kubernetes import connection
from tfx_distribute.components.launchers.kubernetes.client import LAST_LINES
from tfx_distribute.components.launchers.kubernetes.settings import CONTAINER
from tfx_distribute.trainer_module.lifecycle.progress import Progress, describe, log_interval

RETRY_SECONDS = 2.0  # between two connections

SILENT_SECONDS = 120.0  # after which to connect again: the connection may be lost
OVERLAP_SECONDS = 60  # by which our clock and the cluster's may differ
PROGRESS_SECONDS = 10.0  # between two reports of progress, at least
FINISH_SECONDS = 10.0  # to read the rest of the log when the pod has ended


class PodLog:
    """Follows the log of a pod, and then that of its replacement, in a separate thread.

    ```python
    log = PodLog("kubeflow", "jobset.sigs.k8s.io/jobset-name=digits-1")
    log.start()
    log.finish()  # when the pod has ended
    ```

    Args:
      namespace: Namespace of the pod.
      selector: Label selector of the pod; of several pods, it follows the latest.

    Attributes:
      last_lines: The last lines that were passed on.
    """

    def __init__(self, namespace: str, selector: str):
        self._namespace, self._selector = namespace, selector
        self._core = client.CoreV1Api(connection.api_client())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="pod-log")
        self._last_times: dict[str, str] = {}  # pod's uid -> time of the last line passed on
        self._passed_on_at: dict[str, float] = {}  # pod's uid -> when that was, by our clock
        self._begun_at, self._progress_shown_at = time.monotonic(), 0.0
        self.last_lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)

    def start(self) -> None:
        """Begins to pass on the log."""
        self._thread.start()

    def end(self) -> None:
        """Ends without the rest of the log."""
        self._ended.set()

    def finish(self) -> None:
        """Passes on the rest of the log. Call this when the pod has ended."""
        self._ended.set()
        self._thread.join(FINISH_SECONDS)

    def _run(self) -> None:
        while True:
            is_last_time = self._ended.is_set()
            # The pod does not exist yet, or there is no connection. The launcher's
            # thread reports either.
            with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
                self._follow()
            if is_last_time:
                return
            self._ended.wait(RETRY_SECONDS)

    def _follow(self) -> None:
        """Passes on the latest pod's log until the connection ends."""
        pods = self._core.list_namespaced_pod(
            self._namespace, label_selector=self._selector, _request_timeout=SILENT_SECONDS
        ).items
        started = [pod for pod in pods if pod.status.phase in ("Running", "Succeeded", "Failed")]
        if not started:
            return
        pod = max(started, key=lambda pod: pod.metadata.creation_timestamp)
        stream = self._core.read_namespaced_pod_log(
            pod.metadata.name,
            self._namespace,
            container=CONTAINER,
            follow=True,
            timestamps=True,
            since_seconds=self._since(pod.metadata.uid),
            _preload_content=False,
            _request_timeout=SILENT_SECONDS,
        )
        try:
            self._pass_on(pod.metadata.uid, _lines(stream.stream(amt=None)))
        finally:
            stream.release_conn()

    def _since(self, uid: str) -> int | None:
        """Returns how many seconds back to read a pod's log; None for all of it.

        Reading a long log from its beginning again would take too long.
        """
        passed_on_at = self._passed_on_at.get(uid)
        return None if passed_on_at is None else int(time.monotonic() - passed_on_at) + OVERLAP_SECONDS

    def _pass_on(self, uid: str, lines: Iterable[str]) -> None:
        for line in lines:
            at, _, text = line.partition(" ")
            if at <= self._last_times.get(uid, ""):
                continue  # passed on before the connection was lost
            self._last_times[uid], self._passed_on_at[uid] = at, time.monotonic()
            shown = self._as_text(text)
            if shown:
                self.last_lines.append(shown)
                logging.info("chief: %s", shown)

    def _as_text(self, line: str) -> str:
        """Returns a line for people to read; empty for most reports of progress."""
        if not line.startswith('{"phase"'):
            return line
        try:
            progress = Progress.from_json(line)
        except (ValueError, TypeError):
            return line
        now = time.monotonic()
        is_early = now - self._progress_shown_at < max(PROGRESS_SECONDS, log_interval(now - self._begun_at))
        if progress.phase == "train" and is_early and not (progress.message or progress.stalled_secs):
            return ""
        self._progress_shown_at = now
        return describe(progress)


def _lines(chunks: Iterable[bytes]) -> Iterable[str]:
    """Splits a stream of bytes into lines of text."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")
