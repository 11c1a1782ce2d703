"""Keeps a training process accountable: progress, failures, preemption, lost peers."""
