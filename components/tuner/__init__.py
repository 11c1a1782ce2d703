"""Tuner: searches for hyperparameters; each trial is a training as the Trainer's.

`component` declares it and `executor` runs it. `search` describes a search, `oracle`
asks KerasTuner what to try, `trial_jobs` makes the job of a trial, `trial_launcher`
launches it, and `trials` keeps the table.
"""
