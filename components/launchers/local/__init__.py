"""Runs a training cluster as processes of this machine."""
