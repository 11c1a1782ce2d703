"""Compares trainings under several strategies, numbers of workers and batches."""
