"""Runs a training cluster as a CustomJob of Vertex AI."""
