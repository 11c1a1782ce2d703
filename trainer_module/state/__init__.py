"""Saves and restores training, the best weights, and weights of earlier models."""
