"""Runs pipelines on targets: one folder for each target, and what they share."""
