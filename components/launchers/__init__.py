"""Launches training clusters: one room for each place where they run.

Each room has a `launcher.py`, whose `launch` starts every process of a cluster, follows
them until they end, and ends what must not continue:

* `local/`: processes on this machine.
* `kubernetes/`: pods of a TFJob or a JobSet.
* `vertex/`: worker pools of a CustomJob of Vertex AI.

They share `settings.py` (where a training runs, as one document), `retry.py` (requests
to a service that may not answer), `restart_budget.py` (how often a training is started
again), `sigterm.py` (signals to a launcher) and `locks.py` (one live run per folder).
"""
