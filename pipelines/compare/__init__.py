"""Compares trainings under several strategies, numbers of workers and batches."""

TRAIN_STEPS = 200  # of each combination, unless the user says otherwise
MIN_TRAIN_STEPS = 2  # one for the warm-up, one to measure
