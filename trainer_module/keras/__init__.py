"""Reads and sets up models, metrics and optimizers alike in Keras 2 and Keras 3."""
