"""Tuner: searches for hyperparameters; each trial is a training as the Trainer's.

`component` declares it and `executor` runs it. `search` describes a search, `oracle`
asks KerasTuner what to try, `search_run` has the trials trained, and `trials` is the
table.
"""
