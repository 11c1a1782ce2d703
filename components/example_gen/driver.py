"""Fingerprints the files of a data source, so that changed content is read again."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.example_gen import driver, utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import standard_component_specs
from tfx.utils import io_utils, proto_utils

from tfx_distribute.components.example_gen import formats, spans
from tfx_distribute.components.example_gen.names import COLUMN_TYPES, FORMAT, LAST_SPAN, SCHEDULED_AT, SCHEMA_FILE, WINDOW

_BLOCK = 1 << 20


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
            f"split:{name},{_fingerprint(files)}" for name, files in contents.items()
        )
        # TFX's spans, which these ExampleGens do not have.
        exec_properties[utils.SPAN_PROPERTY_NAME], exec_properties[utils.VERSION_PROPERTY_NAME] = 0, None
        return exec_properties


def choose_spans(exec_properties: Mapping[str, Any]) -> spans.Chosen:
    """Returns the folders or files that an ExampleGen reads; see `spans.choose`."""
    values = (exec_properties.get(name) for name in (WINDOW, LAST_SPAN, SCHEDULED_AT))
    input_base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
    return spans.choose(input_base, spans.Window.from_json(*values))


def read_column_types(exec_properties: Mapping[str, Any]) -> dict[str, str]:
    """Returns the types of a curated schema by feature; empty without a schema."""
    if COLUMN_TYPES in exec_properties:
        return dict(json.loads(exec_properties[COLUMN_TYPES]))
    if SCHEMA_FILE not in exec_properties:
        return {}
    schema = io_utils.SchemaReader().read(exec_properties[SCHEMA_FILE])
    return {feature.name: schema_pb2.FeatureType.Name(feature.type) for feature in schema.feature}


def _fingerprint(files: Iterable[tuple[str, str]]) -> str:
    """Fingerprints the content of files, or the size and mtime of remote ones.

    Each file comes with a name that counts, too. Returns their number, their size and a
    SHA-256, as in TFX's fingerprints.
    """
    sizes, digests = [], []
    for file, name in files:
        stat = fileio.stat(file)
        sizes.append(stat.length)
        digests.append(f"{file} {stat.length} {stat.mtime_nsec}" if "://" in file else f"{name} {_sha256(file)}")
    digest = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    return f"num_files:{len(sizes)},total_bytes:{sum(sizes)},sha256:{digest}"


def _sha256(file: str) -> str:
    digest = hashlib.sha256()
    with open(file, "rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
