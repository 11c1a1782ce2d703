"""ExampleGens: read data files as tf.Examples that hold exactly the files' values.

`component` declares them and `driver` fingerprints their files. Each format has an
executor; `csv_rows`, `parquet_files` and `parquet_columns` do the reading. `names` and
`data_files` list, open and fingerprint files.
"""
