"""Handles a training process's progress, failures, preemption and lost peers."""
