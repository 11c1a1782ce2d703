"""Runs a training cluster as a TFJob of Kubeflow's Training Operator."""
