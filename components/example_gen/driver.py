"""Fingerprints the files of a data source, so that changed content is read again."""

import json
from typing import Any

from tfx.components.example_gen import driver, utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_component_specs
from tfx.utils import proto_utils

from tfx_distribute.components.example_gen import formats
from tfx_distribute.components.example_gen.data_files import choose_spans, fingerprint, read_column_types
from tfx_distribute.components.example_gen.names import COLUMN_TYPES, FORMAT, LAST_SPAN, SCHEMA_FILE


class SourceDriver(driver.FileBasedDriver):
    """Drives the ExampleGens for data files.

    The input base may have spans; apart from that, paths are taken literally.
    """

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], pipeline_info: Any, component_info: Any
    ) -> dict[str, Any]:
        """Adds the fingerprint of the files to the component's parameters.

        The last span is named, so that a run for this day comes from the cache of one
        that has read the newest. The types in a schema are added, too: other changes of
        the schema leave the examples as they are.
        """
        data_format, inputs = formats.FORMATS[exec_properties[FORMAT]], example_gen_pb2.Input()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], inputs)
        chosen = choose_spans(exec_properties)
        if chosen.names:
            exec_properties[LAST_SPAN] = chosen.names[-1]
        if SCHEMA_FILE in exec_properties:
            exec_properties[COLUMN_TYPES] = json.dumps(read_column_types(exec_properties))
        contents = {
            split.name: [file for path in chosen.paths for file in data_format.contents(path, split.pattern)]
            for split in inputs.splits
        }
        exec_properties[utils.FINGERPRINT_PROPERTY_NAME] = "\n".join(
            f"split:{name},{fingerprint(files)}" for name, files in contents.items()
        )
        # TFX's spans, which these ExampleGens do not have.
        exec_properties[utils.SPAN_PROPERTY_NAME], exec_properties[utils.VERSION_PROPERTY_NAME] = 0, None
        return exec_properties
