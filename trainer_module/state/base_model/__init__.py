"""Starts training from the weights of another model."""
