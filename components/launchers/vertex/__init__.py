"""Trains in a CustomJob of Vertex AI.

`launcher.py` makes the request, without a client of Google Cloud; `custom_job.py` sends
it and follows the job; `service.py` is what all requests to Vertex AI share.
"""
