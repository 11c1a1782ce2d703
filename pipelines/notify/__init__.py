"""Tells somebody how a run on this machine ended."""
