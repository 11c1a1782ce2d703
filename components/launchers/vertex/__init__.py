"""Trains in a CustomJob of Vertex AI.

`launcher.py` makes the request, without a client of Google Cloud, and follows the job;
`custom_jobs.py` sends requests about it, and `service.py` is what all requests to
Vertex AI share.
"""
