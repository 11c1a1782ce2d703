"""Finds the settings of a Trainer that the function of its module would ignore."""

from collections.abc import Collection
from dataclasses import fields

from tfx_distribute.trainer_module.job.training_job import FaultTolerance, InputOptions, TrainingOptions

# These reach a run_fn in its fn_args, or concern the processes around it.
_REACH_RUN_FN = ("train_steps", "eval_steps", "keras_version", "heartbeat_timeout_secs", "max_restarts")


def ignored(
    function: str, schedule: TrainingOptions, reading: InputOptions, recovery: FaultTolerance, arguments: Collection[str]
) -> dict[str, str]:
    """Returns the settings that the module's function would ignore, and for each what to do instead.

    A `run_fn` reads, builds and fits by itself, so that most parameters do not reach it.

    ```python
    ignored("run_fn", Schedule(seed=3), Reading(), Recovery(), ())
    # {"seed": "a run_fn decides on it by itself; leave it out"}
    ```

    Args:
      function: `build_model` or `run_fn`.
      schedule: Parameters of the Trainer; so are `reading` and `recovery`. Default values are not settings.
      reading: See `schedule`.
      recovery: See `schedule`.
      arguments: Names of the Trainer's other arguments that have a value.
    """
    if function == "build_model":
        reasons = {
            "custom_config": "is for a run_fn; write hparams, for context.hparams of build_model",
            "base_model": "is for a run_fn, which finds it in fn_args.base_model; leave it out",
        }
        return {name: reason for name, reason in reasons.items() if name in arguments}
    reasons = {
        field.name: "a run_fn decides on it by itself; leave it out"
        for group in (schedule, reading, recovery)
        for field in fields(group)
        if field.name not in _REACH_RUN_FN and getattr(group, field.name) != field.default
    }
    if "hparams" in arguments:
        reasons["hparams"] = "are for build_model; write custom_config, for fn_args.custom_config"
    return reasons
