"""Defines the Pusher: TFX's, with pushes that servers see whole or not at all."""

import functools
from typing import Any

from tfx.components.pusher import component
from tfx.dsl.components.base import executor_spec
from tfx.proto import pusher_pb2
from tfx.types import standard_component_specs
from tfx.utils import proto_utils

from tfx_distribute.components.pusher import executor
from tfx_distribute.trainer_module.errors import ConfigurationError


class Pusher(component.Pusher):
    """Pushes a blessed model to a folder that a model server watches.

    Takes the arguments of `tfx.components.Pusher` and has the same output. Each push
    makes a new version folder with a higher number than all existing ones. The folder
    appears only when it is complete; see `publishing`.

    ```python
    pusher = Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=proto.PushDestination(
            filesystem=proto.PushDestination.Filesystem(base_directory="/serving/digits")
        ),
    )
    ```

    `custom_config={"keep": 5}` removes all but the five newest versions after a push.

    Component `outputs` contains:
     - `pushed_model`: Channel of type `standard_artifacts.PushedModel`: a copy of the
       model, with custom properties `pushed`, `pushed_destination` and
       `pushed_version`.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    @functools.wraps(component.Pusher.__init__)  # type: ignore[misc]  # TFX is not typed
    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        # Other executors may push elsewhere.
        if getattr(self.executor_spec, "executor_class", None) is executor.Executor:
            _check_destination(self.exec_properties.get(standard_component_specs.PUSH_DESTINATION_KEY))
            executor.read_keep(self.exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY))


def _check_destination(destination: Any) -> None:
    """Checks that a destination names a folder, unless only a run knows it."""
    if destination is not None and not isinstance(destination, str):
        return
    parsed = proto_utils.json_to_proto(destination or "{}", pusher_pb2.PushDestination())
    if not parsed.filesystem.base_directory:
        raise ConfigurationError(
            "push_destination: it names no folder; write push_destination=proto.PushDestination("
            'filesystem=proto.PushDestination.Filesystem(base_directory="..."))'
        )
