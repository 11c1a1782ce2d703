"""Writes the files that a new project starts with: `tfx-distribute init`."""
