"""Finds settings of a Trainer that its module's function would ignore."""

from collections.abc import Collection
from dataclasses import fields

from tfx_distribute.trainer_module.job.training_job import FaultTolerance, InputOptions, TrainingOptions

# Settings that reach a run_fn in its fn_args, or that concern the processes around it.
_REACH_RUN_FN = ("train_steps", "eval_steps", "keras_version", "heartbeat_timeout_secs", "max_restarts")


def find_ignored(
    function: str,
    options: TrainingOptions,
    input_options: InputOptions,
    fault_tolerance: FaultTolerance,
    arguments: Collection[str],
) -> dict[str, str]:
    """Returns the settings that the module's function would ignore, and why.

    A `run_fn` reads data, builds and fits the model itself, so most settings do not
    reach it. A parameter with its default value does not count as set. `arguments`
    names the Trainer's other arguments that have a value.
    """
    if function == "build_model":
        reasons = {
            "custom_config": "is for a run_fn; write hparams, for context.hparams of build_model",
            "statistics": "are for a run_fn, which finds them in fn_args.num_examples; leave them out",
        }
        return {name: reason for name, reason in reasons.items() if name in arguments}
    reasons = {
        field.name: "a run_fn decides on it by itself; leave it out"
        for group in (options, input_options, fault_tolerance)
        for field in fields(group)
        if field.name not in _REACH_RUN_FN and getattr(group, field.name) != field.default
    }
    if "hparams" in arguments:
        reasons["hparams"] = "are for build_model; write custom_config, for fn_args.custom_config"
    if "warm_start" in arguments:
        reasons["base_model"] = "a run_fn takes weights from fn_args.base_model by itself; write nothing but its path"
    return reasons
