"""Describes a training job: its document, cluster and plans. Needs no TensorFlow."""
