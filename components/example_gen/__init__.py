"""ExampleGens: read data files as tf.Examples that hold exactly the files' values.

`component` declares them, `driver` fingerprints their files, and `executor` writes the
examples of each split. `csv_columns` (with `csv_rows`), `parquet_columns` and `records`
read the three formats, and `images` (with `image_files`) folders of images. `require`
leaves out examples without values, and `spans` finds the data of each day. `names` and
`data_files` list, open and fingerprint files.
"""
