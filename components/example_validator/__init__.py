"""ExampleValidator: stops a run whose data are not as expected.

`component` declares it, `executor` validates statistics with TFDV, and `rules` decides
which anomalies stop a run.
"""
