"""Runs the Beam pipelines of components, on this machine and on job services."""
