"""Tuner: searches for hyperparameters; each trial is a training as the Trainer's.

`component` declares it and `executor` runs it. `search` describes a search, `oracle`
asks KerasTuner what to try, `search_run` trains the trials, here (`local_trials`) or on
other machines, and `trials` is the table.
"""
