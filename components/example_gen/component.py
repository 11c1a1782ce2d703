"""Defines the ExampleGens for data files.

Each takes the arguments of TFX's `FileBasedExampleGen`. It makes gzipped TFRecord files
of tf.Examples, regardless of its output formats. The pattern of a split is `*`, for all
files that are not hidden, or the name of one file or folder.
Spans are in the input base, where TFX has them in the pattern of each split and reads
one of them:

```python
example_gen = CsvExampleGen(input_base="/data/{YYYY}-{MM}-{DD}", window=7)
```
"""

import json
from collections.abc import Sequence
from typing import Any

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import executor_spec
from tfx.orchestration import data_types
from tfx.types import standard_component_specs

from tfx_distribute.components.example_gen import driver, executor, spans
from tfx_distribute.components.example_gen.names import FORMAT, LAST_SPAN, REQUIRE, SCHEMA_FILE, WINDOW
from tfx_distribute.trainer_module.errors import ConfigurationError


class _DataFilesExampleGen(FileBasedExampleGen):
    DRIVER_CLASS = driver.SourceDriver
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)
    FORMAT: str

    def __init__(
        self,
        *arguments: Any,
        require: Sequence[str] = (),
        window: int = 1,
        skip_missing: bool = False,
        span: str | data_types.RuntimeParameter = "",
        time_zone: str = "UTC",
        **options: Any,
    ):
        """Constructs an ExampleGen.

        Args:
          *arguments: Those of TFX's `FileBasedExampleGen`: `input_base`, `input_config`
            and so on. The input base may have spans; see `spans.py`.
          require: Names of features. Examples without a value of one of them are left
            out; the property `left_out` of the output says how many.
          window: Number of spans to read; the property `spans` of the output says
            which they are.
          skip_missing: True if spans inside the window may be missing, or lack columns.
          span: The last span, such as `2026-11-25`; by default the newest that is there
            when the component runs; `scheduled` for the last one that had ended at the
            scheduled time of the run.
          time_zone: Time zone of the dates of spans, such as `Asia/Tokyo`.
          **options: Keyword arguments of `FileBasedExampleGen`.

        Raises:
          ConfigurationError: An argument has a value that has no effect here.
        """
        super().__init__(*arguments, **options)
        self.exec_properties[FORMAT] = self.FORMAT
        if require:
            self.exec_properties[REQUIRE] = json.dumps(list(require))
        input_base = self.exec_properties[standard_component_specs.INPUT_BASE_KEY]
        if isinstance(input_base, str) and spans.has_fields(input_base):
            spans.check_pattern(input_base)
            self.exec_properties[WINDOW] = spans.Window(window, skip_missing, time_zone=time_zone).to_json()
            self.exec_properties[LAST_SPAN] = span
        if self.exec_properties.get(standard_component_specs.RANGE_CONFIG_KEY):
            raise ConfigurationError(
                "range_config: this ExampleGen reads the spans of an input_base such as /data/{YYYY}-{MM}-{DD}; write "
                "window=7 for the last seven"
            )


class CsvExampleGen(_DataFilesExampleGen):
    """Reads CSV files."""

    FORMAT = "csv"

    def __init__(self, *arguments: Any, schema_file: str | None = None, **options: Any):
        """Constructs an ExampleGen.

        Args:
          *arguments: As for the other ExampleGens.
          schema_file: A schema in text format. Columns get its types if their cells
            allow it; by default, only the cells decide.
          **options: As for the other ExampleGens.
        """
        super().__init__(*arguments, **options)
        if schema_file:
            self.exec_properties[SCHEMA_FILE] = schema_file


class ImportExampleGen(_DataFilesExampleGen):
    """Reads TFRecord files of tf.Examples."""

    FORMAT = "tfrecord"


class ImageExampleGen(_DataFilesExampleGen):
    """Reads a folder of images, which has a folder for each class or a metadata.csv."""

    FORMAT = "images"


class ParquetExampleGen(_DataFilesExampleGen):
    """Reads Parquet files."""

    FORMAT = "parquet"


BY_FORMAT = {each.FORMAT: each for each in (CsvExampleGen, ImportExampleGen, ImageExampleGen, ParquetExampleGen)}
