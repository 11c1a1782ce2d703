"""Defines names that ExampleValidator and readers of its results share.

Imports neither TFX nor TensorFlow.
"""

BASELINE, RULES, STOP_ON_ANOMALIES = "baseline", "rules", "stop_on_anomalies"
# Code of the result of an execution whose data were rejected: FAILED_PRECONDITION.
STOPPED = 9


def stopped_folder(anomalies: str) -> str:
    """Returns where the anomalies that have stopped a run are.

    TFX removes the folder of the artifact itself, `anomalies`.
    """
    return f"{anomalies.rstrip('/')}-stopped"
