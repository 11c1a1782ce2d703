"""Runs a training in pods of Kubernetes.

`launcher.py` creates, follows and ends the custom resource whose controller makes the
pods; its kinds are in `jobset.py` (kubernetes-sigs/jobset) and `tfjob.py` (Kubeflow's
Training Operator), which say what is sent and how to read the answers. `client.py`
sends the requests, and `reasons.py` knows some of the cluster's words.
"""
