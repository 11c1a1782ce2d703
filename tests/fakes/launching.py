"""Runs a launcher in a thread, for tests in which something happens to it."""

import threading
from typing import Any

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS, JobKind
from tfx_distribute.components.launchers.launcher import Launcher, Limits, Request, Restarts, follow


def pod_templates(manifest: Request) -> list[dict[str, Any]]:
    """Returns the pod templates within the manifest of a job."""
    spec = manifest["spec"]
    if "replicatedJobs" in spec:
        return [each["template"]["spec"]["template"] for each in spec["replicatedJobs"]]
    return [replica["template"] for replica in spec["tfReplicaSpecs"].values()]


class Launch:
    """A launcher in a thread, and how it ended.

    Args:
      launcher: The launcher.
      manifest: Manifest of the job.
      max_restarts: As in `Restarts`.
      has_result: As in `follow`.
      **limits: Other limits, and `read_step`.

    Attributes:
      error: What the launcher raised; None if it has returned or is running.
    """

    def __init__(
        self,
        launcher: Launcher[Any],
        manifest: Request,
        max_restarts: int = 3,
        *,
        has_result: bool = False,
        **limits: Any,
    ):
        self._manifest = manifest
        self.error: BaseException | None = None
        steps = {key: limits.pop(key) for key in ("read_step",) if key in limits}
        self._limits = Limits(Restarts(max_restarts, **steps), **limits)
        self._thread = threading.Thread(target=self._run, args=(launcher, has_result), daemon=True)
        self._thread.start()

    def _run(self, launcher: Launcher[Any], has_result: bool) -> None:
        try:
            follow(launcher, self._manifest, self._limits, has_result)
        except BaseException as error:
            self.error = error

    @property
    def kind(self) -> JobKind:
        """Returns the kind of a job of Kubernetes."""
        return next(kind for kind in JOB_KINDS.values() if kind.title == self._manifest["kind"])

    @property
    def name(self) -> str:
        """Returns the name of a job of Kubernetes."""
        return str(self._manifest["metadata"]["name"])

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float = 280.0) -> BaseException | None:
        """Waits for its end; returns what it raised."""
        self._thread.join(seconds)
        assert not self.is_running, "the launcher does not end"
        return self.error
