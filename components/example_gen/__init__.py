"""ExampleGens: read data files as tf.Examples that hold exactly the files' values.

`component` declares them, `driver` fingerprints their files, and `executor` writes the
examples of each split. `formats` says for each format which files are read and which
columns they have. `csv_columns` (with `csv_rows`), `parquet_columns`, `records` and
`images` read them. `require` leaves out examples without values, `spans` finds the data
of each day, and `files` lists and opens files.
"""
