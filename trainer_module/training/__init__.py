"""Trains, evaluates, saves and exports a model under a strategy."""
