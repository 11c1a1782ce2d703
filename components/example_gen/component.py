"""Defines the ExampleGens for data files.

```python
examples = ParquetExampleGen(input_base="/data/houses").outputs["examples"]
```

Each takes the arguments of TFX's `FileBasedExampleGen`. It reads no spans and makes
only gzipped TFRecord files of tf.Examples, so that `range_config` and other formats are
refused. The pattern of a split is `*`, for all files that are not hidden, or the name
of one file.
"""

import functools
from typing import Any

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2
from tfx.types import standard_component_specs

from tfx_distribute.components.example_gen import driver, executor
from tfx_distribute.components.example_gen.names import NO_SPANS
from tfx_distribute.trainer_module.errors import ConfigurationError

_FORMATS = (
    (standard_component_specs.OUTPUT_DATA_FORMAT_KEY, example_gen_pb2.PayloadFormat, example_gen_pb2.FORMAT_TF_EXAMPLE),
    (standard_component_specs.OUTPUT_FILE_FORMAT_KEY, example_gen_pb2.FileFormat, example_gen_pb2.FORMAT_TFRECORDS_GZIP),
)


class _DataFilesExampleGen(FileBasedExampleGen):
    """Reads data files whose paths are literal."""

    DRIVER_CLASS = driver.SourceDriver

    @functools.wraps(FileBasedExampleGen.__init__)  # type: ignore[misc]  # TFX is not typed
    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        if self.exec_properties.get(standard_component_specs.RANGE_CONFIG_KEY):
            raise ConfigurationError(f"range_config: {NO_SPANS}")
        # TFX would only record another format.
        for argument, formats, only_format in _FORMATS:
            value = self.exec_properties.get(argument)
            if value is not None and value != only_format:
                raise ConfigurationError(
                    f"{argument}: is {formats.Name(value)}, and this ExampleGen writes {formats.Name(only_format)}; "
                    "leave it out"
                )


class CsvExampleGen(_DataFilesExampleGen):
    """Reads CSV files."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.CsvExecutor)


class ImportExampleGen(_DataFilesExampleGen):
    """Reads TFRecord files of tf.Examples."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.ImportExecutor)


class ParquetExampleGen(_DataFilesExampleGen):
    """Reads Parquet files."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.ParquetExecutor)
