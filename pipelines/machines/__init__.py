"""Accelerators of all platforms, and whether a machine suits the strategy."""
