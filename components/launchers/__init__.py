"""Where a training cluster runs, one file each.

A launcher takes a `TrainingJob`, starts every process of its cluster, follows them to their end, and returns the chief's
`TrainingResult` or raises `TrainingError`.
"""
