"""Checks a model's blessing, archives the model and publishes it."""

import os
from typing import Any

from absl import logging
from tfx import types
from tfx.components.pusher import executor
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, json_utils, proto_utils

from tfx_distribute.components.pusher import publishing, versions
from tfx_distribute.trainer_module.errors import ConfigurationError

Artifacts = dict[str, list[types.Artifact]]
KEEP = "keep"  # key of the Pusher's `custom_config`


class Executor(executor.Executor):
    """Pushes a model like TFX's executor, but atomically, and not twice in a row."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:  # noqa: N802 (TFX)
        """Publishes the model if it is blessed and not served already."""
        self._log_startup(input_dict, output_dict, exec_properties)
        # Checked first: a model that is not pushed must not hide a mistake.
        custom_config = exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY)
        keep = (json_utils.loads(custom_config or "null") or {}).get(KEEP)
        if keep is not None and (not isinstance(keep, int) or keep < 1):
            raise ConfigurationError(f"custom_config: {KEEP} is {keep!r}; write the number of versions to keep, at least 1")
        destination = pusher_pb2.PushDestination()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.PUSH_DESTINATION_KEY], destination)
        folder = destination.filesystem.base_directory
        if not folder:
            raise ConfigurationError("push_destination: it has no folder; write a filesystem.base_directory")
        pushed_model = artifact_utils.get_single_instance(output_dict[standard_component_specs.PUSHED_MODEL_KEY])
        models = input_dict.get(standard_component_specs.MODEL_KEY, [])
        is_withdrawn = any(model.get_int_custom_property(versions.WITHDRAWN) for model in models)
        if is_withdrawn:
            logging.warning("The model is not pushed: a rollback has withdrawn it, see `tfx-distribute models list`")
        if is_withdrawn or not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed_model)
            return
        model = self.GetModelPath(input_dict)
        # Archived first: a model that servers see must not come from a failed node.
        with publishing.explaining_errors(pushed_model.uri):
            io_utils.copy_dir(model, pushed_model.uri)
        version = publishing.find_served(model, folder)
        if version is None:
            version = publishing.publish(model, folder)
            logging.info("Pushed %s to %s as version %s", model, folder, version)
        else:
            logging.info("%s is in %s already, as version %s", model, folder, version)
        if keep is not None:
            publishing.keep_newest(folder, keep)
        self._MarkPushed(pushed_model, pushed_destination=os.path.join(folder, version), pushed_version=version)
