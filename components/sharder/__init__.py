"""Sharder: writes examples as balanced, shuffled TFRecord shards with a manifest.

`component` declares it, `executor` adapts TFX's artifacts, and `beam_pipeline` builds
the Beam pipeline. `sorted_runs` shuffles more examples than memory holds, and
`example_encoder` writes equal examples as equal bytes.
"""
