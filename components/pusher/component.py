"""Defines the Pusher: TFX's, with pushes that servers see whole or not at all."""

from tfx.components.pusher import component
from tfx.dsl.components.base import executor_spec

from tfx_distribute.components.pusher import executor


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
