"""The command `tfx-distribute`."""
