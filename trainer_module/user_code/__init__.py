"""Finds, loads and fingerprints the user's module."""
