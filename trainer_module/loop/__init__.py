"""Trains and evaluates: epochs, steps, gradients and losses under a strategy."""
