"""Validates statistics of examples with TFDV, and stops a run whose data it rejects."""

import os
from typing import Any

import tensorflow_data_validation as tfdv
from absl import logging
from tfx import types
from tfx.components.example_validator import executor
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, json_utils

from tfx_distribute.components.example_gen.names import describe_empty_split
from tfx_distribute.components.example_validator import rules as rules_lib
from tfx_distribute.components.report.features import ANOMALIES_FILE, STATISTICS_FILE, list_statistics
from tfx_distribute.trainer_module.errors import ConfigurationError

_OF_SCHEMA = "write what is new into the schema with `tfx-distribute schema accept`"
_ONE_RUN = "let one run pass with -p stop_on_anomalies=false; later runs are compared with its data"
_REQUIRE = (
    "leave out examples without a value with data.require (-p stop_on_anomalies=false does not help against gaps: "
    "Transform or the Trainer may fail)"
)


class Executor(executor.Executor):
    """Validates like TFX's executor, and compares splits and runs."""

    def Do(  # noqa: N802 (TFX's name)
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> execution_result_pb2.ExecutorOutput:
        """Validates each split.

        The anomalies of a split are written next to its statistics, with which the next
        run compares its own. If they stop the run, the result has the code `STOPPED`,
        TFX makes the node fail, and they are in a folder next to the artifact's.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        rules = rules_lib.ValidationRules.from_json(exec_properties[rules_lib.RULES])
        excluded = json_utils.loads(exec_properties.get(standard_component_specs.EXCLUDE_SPLITS_KEY) or "null") or []
        statistics = artifact_utils.get_single_instance(input_dict[standard_component_specs.STATISTICS_KEY])
        folder = artifact_utils.get_single_uri(input_dict[standard_component_specs.SCHEMA_KEY])
        schema = rules_lib.with_thresholds(io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(folder)), rules)
        splits = [split for split in artifact_utils.decode_split_names(statistics.split_names) if split not in excluded]
        output = artifact_utils.get_single_instance(output_dict[standard_component_specs.ANOMALIES_KEY])
        output.split_names, output.span = artifact_utils.encode_split_names(splits), statistics.span
        by_split = {split: stats_artifact_utils.load_statistics(statistics, split).proto() for split in splits}
        baseline = input_dict.get(rules_lib.BASELINE)
        last = dict(list_statistics(baseline[0].uri)) if baseline else {}
        lines, blessed, kinds = rules_lib.describe_unknown(schema, rules), {}, set()
        for split, proto in by_split.items():
            if not sum(dataset.num_examples for dataset in proto.datasets):  # of which SchemaGen makes a useless schema
                raise ConfigurationError(describe_empty_split(split))
            anomalies = tfdv.validate_statistics(
                proto,
                schema,
                previous_statistics=last.get(split),
                serving_statistics=by_split.get("eval") if split == "train" else None,
            )
            for feature, reason in rules_lib.apply(anomalies, rules):
                lines.append(f"{feature or 'all examples'} ({split}): {reason.description.strip()}")
                kinds.add(reason.type)
            for name, message in ((ANOMALIES_FILE, anomalies), (STATISTICS_FILE, proto)):
                io_utils.write_bytes_file(os.path.join(output.uri, f"Split-{split}", name), message.SerializeToString())
            blessed[split] = int(not anomalies.anomaly_info and not anomalies.HasField("dataset_anomaly_info"))
        output.set_json_value_custom_property(executor.ARTIFACT_PROPERTY_BLESSED_KEY, blessed)
        result = execution_result_pb2.ExecutorOutput()
        if lines and exec_properties[rules_lib.STOP_ON_ANOMALIES]:
            # TFX removes the output of a node that fails.
            io_utils.copy_dir(output.uri, rules_lib.stopped_folder(output.uri))
            message = "\n  ".join(["the data were rejected, and the run stopped before training:", *lines])
            joins = "and" if kinds & rules_lib.COMPARED else "or"  # a schema says nothing of changes between data
            of_schema = f"{_OF_SCHEMA}, {joins} " if kinds - rules_lib.COMPARED else ""
            advice = f"{of_schema}{_REQUIRE if kinds & rules_lib.GAPS else _ONE_RUN}"
            result.execution_result.code = rules_lib.STOPPED
            result.execution_result.result_message = f"{message}\nIf the data are right, {advice}"
            return result
        for line in lines:
            logging.warning("%s", line)
        result.output_artifacts[standard_component_specs.ANOMALIES_KEY].artifacts.append(output.mlmd_artifact)
        return result
