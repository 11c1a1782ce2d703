"""Runs a training in pods of Kubernetes.

`launcher.py` creates, follows and ends the custom resource whose controller makes the
pods. Its kinds, JobSet and TFJob, are in `job_kinds.py`: what is sent, and how to read
the answers. `client.py` sends the requests, `pods.py` reads what pods report and print,
and `reasons.py` knows some of the cluster's words.
"""
