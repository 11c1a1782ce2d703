"""Checks a Google Cloud project for a pipeline, before anything is billed."""
