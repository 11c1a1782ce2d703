"""Fingerprints the files of a data source, so that changed content is read again."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tfx.components.example_gen import driver, input_processor
from tfx.proto import example_gen_pb2, range_config_pb2

from tfx_distribute.components.example_gen import formats
from tfx_distribute.components.example_gen.data_files import choose_spans, fingerprint, read_column_types
from tfx_distribute.components.example_gen.names import COLUMN_TYPES, FORMAT, LAST_SPAN, SCHEMA_FILE


class _SourceFiles(input_processor.InputProcessor):
    def __init__(self, splits: Iterable[example_gen_pb2.Input.Split], data_format: formats.Format, paths: Sequence[str]):
        super().__init__(splits)
        self._format, self._paths = data_format, paths

    def get_pattern_for_span_version(self, pattern: str, span: int, version: int | None) -> str:
        return pattern

    def get_latest_span(self) -> int:
        return 0

    def get_input_fingerprint(self, span: int, version: int | None) -> str:
        return "\n".join(f"split:{split.name},{self._fingerprint(split.pattern)}" for split in self._splits)

    def _fingerprint(self, pattern: str) -> str:
        return fingerprint(file for path in self._paths for file in self._format.contents(path, pattern))


class SourceDriver(driver.FileBasedDriver):
    """Drives the ExampleGens for data files.

    The input base may have spans; apart from that, paths are taken literally.
    """

    _format: formats.Format
    _paths: tuple[str, ...] = ()

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], pipeline_info: Any, component_info: Any
    ) -> dict[str, Any]:
        """Adds the fingerprint of the files to the component's parameters.

        The last span is named, so that a run for this day comes from the cache of one
        that has read the newest. The types in a schema are added, too: other changes of
        the schema leave the examples as they are.
        """
        self._format = formats.FORMATS[exec_properties[FORMAT]]
        chosen = choose_spans(exec_properties)
        self._paths = chosen.paths
        if chosen.names:
            exec_properties[LAST_SPAN] = chosen.names[-1]
        if SCHEMA_FILE in exec_properties:
            exec_properties[COLUMN_TYPES] = json.dumps(read_column_types(exec_properties))
        return dict(super().resolve_exec_properties(exec_properties, pipeline_info, component_info))

    def get_input_processor(
        self,
        splits: Iterable[example_gen_pb2.Input.Split],
        range_config: range_config_pb2.RangeConfig | None = None,
        input_base_uri: str | None = None,
    ) -> input_processor.InputProcessor:
        """Returns the processor that fingerprints the files."""
        return _SourceFiles(splits, self._format, self._paths)
