"""Defines the ExampleGens for data files.

```python
examples = ParquetExampleGen(input_base="/data/houses").outputs["examples"]
```

Each takes the arguments of TFX's `FileBasedExampleGen`. The pattern of a split is `*`,
for all files that are not hidden, or the name of one file.
"""

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import executor_spec

from tfx_distribute.components.example_gen import csv_executor, driver, parquet_executor, tfrecord_executor


class CsvExampleGen(FileBasedExampleGen):
    """Reads CSV files."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(csv_executor.Executor)
    DRIVER_CLASS = driver.SourceDriver


class ImportExampleGen(FileBasedExampleGen):
    """Reads TFRecord files of tf.Examples."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(tfrecord_executor.Executor)
    DRIVER_CLASS = driver.SourceDriver


class ParquetExampleGen(FileBasedExampleGen):
    """Reads Parquet files."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(parquet_executor.Executor)
    DRIVER_CLASS = driver.SourceDriver
