"""Evaluator: decides whether a model is blessed, by finite metrics and finite baselines only."""
