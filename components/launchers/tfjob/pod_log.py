"""What the chief's pod prints, passed on while it does."""

import collections
import contextlib
import threading
import time
from collections.abc import Iterable
from types import TracebackType

import urllib3
from absl import logging
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tfx_distribute.components.launchers.tfjob import manifest as tfjob_manifest
from tfx_distribute.trainer_module.lifecycle.progress import Progress

AGAIN_SECONDS = 2.0
LAST_LINES = 20
SILENT_SECONDS = 120.0  # after which a connection is made anew: it may be none any more
OVERLAP_SECONDS = 60  # by how much clocks may differ
SHOWN_SECONDS = 10.0  # between two reports of how far training is
LAST_SECONDS = 10.0  # to take in what is left when the pod has ended


class PodLog:
    """Follows the log of a pod in a thread of its own, and that of the pod that comes in its place.

    Args:
      namespace: Namespace of the pod.
      selector: Labels of the pod; of several, the latest is followed.

    Attributes:
      last_lines: What was passed on last.
    """

    def __init__(self, namespace: str, selector: str):
        self._namespace, self._selector = namespace, selector
        self._core = client.CoreV1Api()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="pod-log")
        self._last: dict[str, str] = {}  # pod's uid -> time of the last line that was passed on
        self._passed: dict[str, float] = {}  # pod's uid -> when that was
        self._shown = 0.0
        self.last_lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)

    def __enter__(self) -> "PodLog":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()

    def finish(self) -> None:
        """Takes in what is left. To be called when the pod has ended."""
        self._ended.set()
        self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        while True:
            last_time = self._ended.is_set()
            # No such pod yet, or no connection: the other thread tells.
            with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
                self._follow()
            if last_time:
                return
            self._ended.wait(AGAIN_SECONDS)

    def _follow(self) -> None:
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
            container=tfjob_manifest.CONTAINER,
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
        """How far back to look: not to the beginning, where a long log goes on."""
        passed = self._passed.get(uid)
        return None if passed is None else int(time.monotonic() - passed) + OVERLAP_SECONDS

    def _pass_on(self, uid: str, lines: Iterable[str]) -> None:
        for line in lines:
            at, _, text = line.partition(" ")
            if at <= self._last.get(uid, ""):
                continue  # before a connection was lost
            self._last[uid], self._passed[uid] = at, time.monotonic()
            told = self._as_text(text)
            if told:
                self.last_lines.append(told)
                logging.info("chief: %s", told)

    def _as_text(self, line: str) -> str:
        """A line as people read it; reports of progress only now and then."""
        if not line.startswith('{"phase"'):
            return line
        try:
            progress = Progress.from_json(line)
        except (ValueError, TypeError):
            return line
        now = time.monotonic()
        stall = f"no progress for {progress.stalled_secs:.0f} s in {progress.activity}" if progress.stalled_secs else ""
        if progress.phase == "train" and not (progress.message or stall) and now - self._shown < SHOWN_SECONDS:
            return ""
        self._shown = now
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in (progress.metrics or {}).items())
        where = f"training step {progress.step} of {progress.train_steps}" if progress.train_steps else ""
        return "; ".join(filter(None, (progress.phase, where, metrics, stall, progress.message)))


def _lines(chunks: Iterable[bytes]) -> Iterable[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")
