"""Runs one step of a pipeline in its container.

`__main__.py` is the command of steps on Kubeflow Pipelines, `vertex.py` that of steps
on Vertex AI. `commands.py` does the work of the former, and `executor_io.py` reads and
writes Kubeflow's documents. `names.py` has the names that compiled pipelines and steps
share.
"""
