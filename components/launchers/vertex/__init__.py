"""Runs a training cluster as a CustomJob of Vertex AI.

`launcher.py` creates, follows and ends it. `spec.py` makes what is sent, `client.py`
sends requests to Vertex AI, `status.py` interprets the answers, and `service_errors.py`
tells the service's errors apart.
"""
