"""Compiles for Kubeflow Pipelines and submits to it."""
