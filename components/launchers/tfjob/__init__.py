"""Runs a training cluster as a TFJob of Kubeflow's Training Operator.

`launcher.py` creates, follows and ends it. `manifest.py` makes what is sent,
`client.py` sends requests to Kubernetes, `status.py` interprets the answers, and
`pod_log.py` passes on what the chief prints.
"""
