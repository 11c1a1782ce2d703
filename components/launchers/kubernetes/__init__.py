"""Runs a training cluster in pods of Kubernetes.

`launcher.py` creates, follows and ends the custom resource that makes the pods; its
kinds are in `tfjob.py` (Kubeflow's Training Operator) and `jobset.py`
(kubernetes-sigs/jobset), which say what is sent and how to read the answers.
`client.py` sends the requests.
"""
