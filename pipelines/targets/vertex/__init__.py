"""Compiles for Vertex AI Pipelines and submits to it."""
