"""Defines launcher errors that do not mean that the training itself failed."""

from tfx_distribute.trainer_module.errors import TrainingError


class NotFollowedError(TrainingError):
    """The launcher cannot follow the training any more.

    The training itself has not failed, as far as is known: it may still be running, and
    another attempt may follow or continue it.
    """


class NoRoomError(TrainingError):
    """A quota is used up by others for now, so the training cannot start."""


class GoneError(NotFollowedError):
    """The job that trains does not exist any more."""


class NoAnswerError(NotFollowedError):
    """The service that runs the training, or its storage, did not answer for long."""
