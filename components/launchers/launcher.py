"""Defines what a launcher is, and follows every training in the same way.

A launcher knows one platform: what to ask it for, and how to read its answers. `follow`
has what is the same on all of them: restarts, deadlines, each news once, the lease, and
the final error.

To add a platform, write a class like `Launcher` and its settings, and name the class in
the entry points of a package (group `tfx_distribute.launchers`): CONTRIBUTING has one.
"""

import abc
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

from absl import logging
from typing_extensions import Self

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.errors import NoRoomError, NotFollowedError
from tfx_distribute.components.launchers.sigterm import TerminatedError, terminable
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import tasks_of
from tfx_distribute.trainer_module.job.training_job import Distribution

Request = dict[str, Any]


@dataclass(frozen=True)
class LauncherSettings:
    """Settings of a launcher. The Trainer's step gets them as a JSON document.

    A subclass adds those of its platform.

    Attributes:
      name: First part of the names of trainings: the name of the pipeline.
      training: `step` for processes in the Trainer's own step; `auto` for these only
        if it is a single process; `elsewhere` for never in the step; or a value of the
        platform, such as `jobset`.
      training_dir: Folder or address that all processes can reach, where artifacts are
        copied to and from; None only if artifacts have addresses such as `gs://`.
      start_timeout_seconds: Seconds after which a training that has not started fails;
        0 for no limit. Waiting in a queue does not count.
      active_deadline_seconds: Seconds after which a training fails; None for no limit.
        Waiting in a queue does not count.
      LAUNCHER: Name of the launcher, see `registry`.
    """

    name: str
    _: KW_ONLY
    training: str = "auto"
    training_dir: str | None = None
    start_timeout_seconds: float = 3600.0
    active_deadline_seconds: float | None = None

    LAUNCHER: ClassVar[str]

    def runs_remotely(self, distribution: Distribution) -> bool:
        """Returns True if training runs on other machines, not in the step."""
        if self.training == "auto":
            return len(tasks_of(distribution)) > 1
        return self.training != "step"

    def elsewhere(self) -> Self:
        """Returns the same settings, but training never runs in the Trainer's step."""
        return replace(self, training="elsewhere") if self.training in ("auto", "step") else self


@dataclass(frozen=True)
class Training:
    """A training, as its processes run it.

    Each runs `python -m tfx_distribute.trainer_module --job JOB_ADDRESS` with the
    variables of `environment`, and with `TF_CONFIG` if there are several, which
    `trainer_module.job.cluster.Cluster` makes. The variables at the top of that module
    tell a process more.

    The training ends with its chief; parameter servers do not end by themselves. A
    process ends with an exit code of `trainer_module.liveness.exit_codes`, which says
    whether another start may help. If one fails for good, the others end with codes
    that allow another start: a final code of any process decides.

    Attributes:
      name: Name of the training, the same for each attempt of a step: a DNS label of at
        most 43 characters.
      job_address: Path or address of the `TrainingJob` document, in a folder that may
        be written to.
      distribution: Strategy and number of processes.
      environment: Environment variables of each process.
      max_restarts: How many times a platform may restart it by itself.
    """

    name: str
    job_address: str
    distribution: Distribution
    environment: Mapping[str, str]
    max_restarts: int = 0


@dataclass(frozen=True)
class Failure:
    """The failure of a training.

    Attributes:
      message: Error message for people, with the last lines of the process.
      is_final: True if a restart would fail too.
      has_restarted: True if the platform has restarted it by itself, as often as it was
        allowed.
    """

    message: str
    is_final: bool = False
    has_restarted: bool = False


@dataclass(frozen=True)
class State:
    """The state of a training.

    Attributes:
      phase: `queued` while its platform does not start it, as a queue has it wait;
        `starting` until all processes have started; `running`; `succeeded` once the
        chief has ended with 0; `failed`. In both, no process runs any more, or `state`
        has ended it.
      words: The state, for people; logged when it changes.
      failure: How it has failed; None if it has not.
    """

    phase: Literal["queued", "starting", "running", "succeeded", "failed"]
    words: str = ""
    failure: Failure | None = None


SettingsT = TypeVar("SettingsT", bound=LauncherSettings)


class Launcher(abc.ABC, Generic[SettingsT]):
    """Runs one training on a platform.

    Import clients of services in methods: `plan` makes requests without them.

    Args:
      settings: Where the training runs.

    Attributes:
      Settings: Class of the settings.
      poll_seconds: Time between two looks at the training.
    """

    Settings: ClassVar[type[LauncherSettings]]
    poll_seconds: float = 2.0

    def __init__(self, settings: SettingsT):
        self.settings = settings

    @abc.abstractmethod
    def request(self, training: Training) -> Request:
        """Makes the request for the processes of a training, without sending anything.

        Raises:
          ConfigurationError: The platform cannot run this training.
        """

    @abc.abstractmethod
    def start(self, request: Request, has_result: bool) -> bool:
        """Starts the training, or takes over that of an earlier attempt of the step.

        One that is still running is taken over; one that has ended is started again.

        Args:
          request: What `request` has made.
          has_result: True if an earlier attempt has left the result: nothing is
            started, and only what is still running is taken over.

        Returns:
          True if there is a training to follow.

        Raises:
          ConfigurationError: The platform refuses it.
        """

    @abc.abstractmethod
    def state(self) -> State:
        """Asks for the state of the training.

        Raises:
          NotFollowedError: It is gone, or the platform does not answer for long.
        """

    def news(self) -> list[str]:
        """Returns what the platform says about the training, such as warnings.

        `follow` logs each line once, so lines may be repeated. Empty by default.
        """
        return []

    @abc.abstractmethod
    def stop(self, has_time: bool) -> None:
        """Ends what `start` has started, if anything; logs if that is not possible.

        Args:
          has_time: False after a signal to this process, which has to end soon: each
            request is sent once. Processes on this machine are waited for until they
            have saved; others save by themselves when they get SIGTERM.
        """


class Restarts:
    """Counts the restarts of a training since its saved state last advanced.

    Args:
      max_restarts: How many restarts in a row are allowed in which the training does
        not advance.
      read_step: Returns a number that grows when training saves a later state.
      tell: Called with the reason of each restart.
    """

    def __init__(
        self, max_restarts: int, read_step: Callable[[], int] = int, tell: Callable[[str], None] = lambda words: None
    ):
        self._max, self._read_step, self._tell = max_restarts, read_step, tell
        self._used = 0
        self._furthest = read_step()

    def allow(self, failure: Failure) -> bool:
        """Counts a restart, and waits until it may be made.

        The first start comes at once, and so does each after a save of a later state.
        Others wait 1, 2, 4 ... seconds, `timeouts.RESTART_SECONDS` at most.

        Returns:
          False if the training must not be started again.
        """
        saved = self._read_step()
        if saved > self._furthest:
            self._furthest, self._used = saved, 0
        elif failure.has_restarted:
            self._used = self._max
        if self._used >= self._max:
            return False
        self._used += 1
        words = f"{failure.message.splitlines()[0]}; restart {self._used} of {self._max}"
        logging.warning("%s", words)
        self._tell(words)
        if self._used > 1:
            time.sleep(min(timeouts.RESTART_SECONDS, 2.0 ** (self._used - 2)))
        return True

    def describe(self, failure: Failure) -> str:
        """Describes the last failure, and why the training is not started again."""
        if failure.is_final or not self._max:
            return failure.message
        return f"{failure.message}\nAll {self._max} restarts (max_restarts) are used up"


@dataclass(frozen=True)
class Limits:
    """How long, and how often, a training is tried.

    Attributes:
      start_seconds: Seconds that it may take to start; 0 for no limit.
      deadline_seconds: Seconds that it may take without the time in queues; 0 for no
        limit.
      is_lost: Returns True if another attempt of the step follows the training by now.
      is_stopped: Returns True if the training has to end, as after a signal.
    """

    restarts: Restarts
    start_seconds: float = 0.0
    deadline_seconds: float = 0.0
    is_lost: Callable[[], bool] = lambda: False
    is_stopped: Callable[[], bool] = lambda: False


def follow(launcher: Launcher[Any], request: Request, limits: Limits, has_result: bool = False) -> None:
    """Runs a training to its end, and returns when it has succeeded.

    After a failure that may not happen again, it is started again from its last save. A
    training that has failed for good stays for people to look at, where its platform
    keeps such; any other end stops it. For `has_result`, see `Launcher.start`.

    Raises:
      ConfigurationError: The platform refuses the training.
      NoRoomError: It has not started in time.
      NotFollowedError: Another attempt follows it, or the platform does not answer.
      TerminatedError: It was stopped.
      TrainingError: It has failed; the message has the platform's reason.
    """
    has_ended, seconds = False, 0.0
    with terminable():
        try:
            while launcher.start(request, has_result):
                failure, seconds = _follow_once(launcher, limits, seconds)
                if failure is None:
                    return
                if failure.is_final or not limits.restarts.allow(failure):
                    has_ended = True
                    raise TrainingError(limits.restarts.describe(failure))
        except BaseException as error:
            if not (has_ended or limits.is_lost()):
                launcher.stop(has_time=isinstance(error, Exception))  # a signal gives little
            raise


def _follow_once(launcher: Launcher[Any], limits: Limits, seconds: float) -> tuple[Failure | None, float]:
    """Follows a training until it has succeeded or failed.

    `seconds` is how long it took before its last start. Returns its failure, or None if
    it has succeeded; and how long it has taken by now.
    """
    said: dict[str, None] = {}
    logged, last_look, starting = "", time.monotonic(), 0.0
    while True:
        if limits.is_lost():
            raise NotFollowedError("another attempt of this step follows the training by now")
        if limits.is_stopped():
            raise TerminatedError
        state = launcher.state()
        passed, last_look = time.monotonic() - last_look, time.monotonic()
        if state.words != logged:
            logged = state.words
            logging.info("%s", logged)
        if state.phase in ("succeeded", "failed"):
            return state.failure, seconds
        for words in launcher.news():
            if words not in said:
                said[words] = None
                logging.warning("%s", words)
        seconds += passed * (state.phase != "queued")
        starting = starting + passed if state.phase == "starting" else 0.0
        if limits.start_seconds and starting > limits.start_seconds:
            raise NoRoomError(
                f"the training has not started within {limits.start_seconds:g} s (start_timeout_seconds): "
                # Not only the last: what came last need not be what keeps it.
                + ("\n".join(list(said)[-10:]) or logged)
            )
        if limits.deadline_seconds and seconds > limits.deadline_seconds:
            raise TrainingError(f"the training takes longer than {limits.deadline_seconds:g} s (active_deadline_seconds)")
        time.sleep(launcher.poll_seconds)
