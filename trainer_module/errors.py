"""The errors that a person is meant to read.

Everything else that is raised is a fault of ours or of a library and keeps its traceback.
"""


class TfxDistributeError(Exception):
    """Base of the errors whose message alone says what was asked, what is wrong and what to write instead."""


class ConfigurationError(TfxDistributeError, ValueError):
    """What was asked for cannot be run as written. Known before anything starts."""


class TrainingError(TfxDistributeError, RuntimeError):
    """A training process failed. The message holds the end of what it printed."""


class PreemptedError(TfxDistributeError, RuntimeError):
    """This process was told to leave, and has saved what it had. Another try goes on from there."""


class PeerLostError(TfxDistributeError, RuntimeError):
    """Another process of the cluster is gone, so that this one cannot go on. Another try may."""


class DataError(TfxDistributeError, RuntimeError):
    """Examples cannot be read as they are. The message names the file and, where there is one, the record."""
