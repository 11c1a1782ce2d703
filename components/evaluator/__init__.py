"""Evaluator: decides if a model is blessed, by finite metrics and finite baselines.

`component` declares it, `executor` runs TFX's evaluation and writes the verdict,
`batches` has TFMA compute metrics a batch at a time, with the sums of `sums` and the
slices of `extractors`.
`baseline` tells whether a baseline can read the examples, and `thresholds` judges
metrics against thresholds.
"""
