"""Runners: where a pipeline runs, one file each."""
