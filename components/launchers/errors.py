"""Defines errors of launchers that say nothing about what was trained."""

from tfx_distribute.trainer_module.errors import TrainingError


class NotFollowedError(TrainingError):
    """The launcher cannot follow the training any more.

    The training itself has not failed, as far as is known: it may still be running, and
    another attempt may follow or continue it.
    """


class NoRoomError(TrainingError):
    """A quota that others use too leaves no room for the training."""


class GoneError(NotFollowedError):
    """The job that trains does not exist any more."""


class NoAnswerError(NotFollowedError):
    """The service that runs the training, or its storage, did not answer for long."""
