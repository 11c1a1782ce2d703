"""Trainer: trains a model under a `tf.distribute` strategy, here or on other machines.

`component` declares it and `executor` runs it. `job_builder` makes the job document,
with `input_splits` (its data) and `run_identity` (where it resumes); `places` and
`staging` look after a run while it trains.
"""
