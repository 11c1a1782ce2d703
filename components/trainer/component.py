"""The Trainer component: TFX's, with the way of training as pipeline parameters."""

import os
from dataclasses import fields
from typing import Any, TypeAlias

from tfx import types
from tfx.components.util import udf_utils
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs
from tfx.utils import json_utils

from tfx_distribute.components.trainer import executor, job_builder
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import PARAMETERS
from tfx_distribute.trainer_module.user_code import module_loader

Text: TypeAlias = str | data_types.RuntimeParameter
Number: TypeAlias = int | data_types.RuntimeParameter


class TrainerSpec(standard_component_specs.TrainerSpec):
    """TFX's TrainerSpec and the parameters of `Distribution`, `Schedule` and `Reading`."""

    PARAMETERS = {  # noqa: RUF012 (as TFX declares them)
        **standard_component_specs.TrainerSpec.PARAMETERS,
        "build_model": component_spec.ExecutionParameter(type=str, optional=True),
        "module_fingerprint": component_spec.ExecutionParameter(type=str, optional=True),
        "label": component_spec.ExecutionParameter(type=str, optional=True),
        "example_weight": component_spec.ExecutionParameter(type=str, optional=True),
        "hparams": component_spec.ExecutionParameter(type=str, optional=True),
        "checkpoint_dir": component_spec.ExecutionParameter(type=str, optional=True),
        "launcher": component_spec.ExecutionParameter(type=str, optional=True),
        **{
            field.name: component_spec.ExecutionParameter(type=job_builder.property_type(field), optional=True)
            for dataclass in PARAMETERS
            for field in fields(dataclass)
        },
    }


class Trainer(base_component.BaseComponent):
    """Trains a model under a `tf.distribute` strategy that is a pipeline parameter.

    Accepts what `tfx.components.Trainer` accepts, under the same names. A module with a TFX `run_fn(fn_args)` works
    unchanged; a module with `build_model(context)` leaves reading, training, export and distribution to the component.

    ```python
    trainer = Trainer(
        module_file="model.py",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        label="digit",
        strategy="multi_worker_mirrored",
        num_workers=RuntimeParameter("num_workers", int, default=2),
        epochs=20,
    )
    ```

    Component `outputs` contains:
     - `model`: Channel of type `standard_artifacts.Model`, the trained SavedModel. Its custom properties tell strategy,
       workers, replicas, global batch size and training steps.
     - `model_run`: Channel of type `standard_artifacts.ModelRun`, TensorBoard logs.
    """

    SPEC_CLASS = TrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        examples: types.BaseChannel | None = None,
        transformed_examples: types.BaseChannel | None = None,
        transform_graph: types.BaseChannel | None = None,
        schema: types.BaseChannel | None = None,
        base_model: types.BaseChannel | None = None,
        hyperparameters: types.BaseChannel | None = None,
        module_file: Text | None = None,
        run_fn: Text | None = None,
        train_args: trainer_pb2.TrainArgs | data_types.RuntimeParameter | None = None,
        eval_args: trainer_pb2.EvalArgs | data_types.RuntimeParameter | None = None,
        custom_config: dict[str, Any] | data_types.RuntimeParameter | None = None,
        custom_executor_spec: executor_spec.ExecutorSpec | None = None,
        *,
        build_model: Text | None = None,
        module_fingerprint: str | None = None,
        label: Text | None = None,
        example_weight: Text | None = None,
        hparams: dict[str, Any] | data_types.RuntimeParameter | None = None,
        strategy: Text | None = None,
        num_workers: Number | None = None,
        num_parameter_servers: Number | None = None,
        accelerator_type: Text | None = None,
        accelerator_count: Number | None = None,
        all_reduce: Text | None = None,
        per_replica_batch_size: Number | None = None,
        train_steps: Number | None = None,
        epochs: Number | None = None,
        eval_steps: Number | None = None,
        precision: Text | None = None,
        learning_rate_scaling: Text | None = None,
        warmup_steps: Number | None = None,
        seed: Number | None = None,
        devices: Text | None = None,
        num_evaluators: Number | None = None,
        partition_min_bytes: Number | None = None,
        mesh: Text | None = None,
        layout_rules: Text | None = None,
        tpu: Text | None = None,
        keras_version: Number | None = None,
        global_clipnorm: float | data_types.RuntimeParameter | None = None,
        gradient_accumulation_steps: Number | None = None,
        jit_compile: Number | None = None,
        steps_per_execution: Number | None = None,
        profile_steps: Text | None = None,
        drop_remainder: Number | None = None,
        shuffle_buffer_size: Number | None = None,
        cycle_length: Number | None = None,
        num_parallel_calls: Number | None = None,
        prefetch_buffer_size: Number | None = None,
        cache: Text | None = None,
        max_corrupt_records: Number | None = None,
        save_checkpoints_secs: Number | None = None,
        save_checkpoints_steps: Number | None = None,
        heartbeat_timeout_secs: Number | None = None,
        max_restarts: Number | None = None,
        progress_timeout_secs: Number | None = None,
        checkpoint_dir: Text | None = None,
        launcher: str | None = None,
    ):
        """Constructs a Trainer component.

        Args:
          examples: Channel of `standard_artifacts.Examples` to train on, raw or transformed.
          transformed_examples: Deprecated by TFX; use `examples`.
          transform_graph: Channel of `standard_artifacts.TransformGraph`, where the examples are transformed.
          schema: Channel of `standard_artifacts.Schema`; needed by `build_model` where there is no transform graph.
          base_model: Channel of `standard_artifacts.Model` for a `run_fn` to start from.
          hyperparameters: Channel of `standard_artifacts.HyperParameters`, a Tuner's. Wins over `hparams`.
          module_file: Python file with `build_model` or, where it has none, `run_fn`. Exactly one of `module_file`,
            `run_fn` and `build_model`.
          run_fn: Dotted path of a TFX `run_fn(fn_args)`.
          train_args: Splits to train on (default `train`) and steps (default: `train_steps`).
          eval_args: Splits to evaluate on (default `eval`) and steps (default: `eval_steps`).
          custom_config: Passed to a `run_fn` in `fn_args.custom_config`.
          custom_executor_spec: Another executor, as in TFX.
          build_model: Dotted path of a `build_model(context)`, see `trainer_module.ModelContext`.
          module_fingerprint: Any text that changes when the module behind `run_fn` or `build_model` does, so that TFX's
            cache notices. With `module_file`, TFX itself sees to it.
          label: Name of the feature that the model predicts; needed by `build_model`.
          example_weight: Name of the feature that says what each example counts, for `build_model`. Default: all alike.
          hparams: Passed to `build_model` in `context.hparams`; as a RuntimeParameter, a JSON object.
          strategy: `default`, `one_device`, `mirrored`, `central_storage`, `multi_worker_mirrored`, `parameter_server`,
            `tpu`, `model_parallel`, or `auto` for the one that suits workers and devices. Default `default`.
          num_workers: Training processes, the chief included; under `parameter_server`, workers beside the chief, which
            coordinates. Default 1.
          num_parameter_servers: Parameter servers; 0 for one under `parameter_server`. Default 0.
          accelerator_type: `cpu`, `gpu`, or `auto` for the GPUs that a process sees or else its CPU. Default `auto`.
          accelerator_count: Devices per training process; 0 takes all. Default 0.
          all_reduce: How replicas sum gradients: `auto`, `ring` or `nccl` under `multi_worker_mirrored`; `auto`, `nccl`,
            `hierarchical_copy` or `reduction_to_one_device` under `mirrored`. Default `auto`.
          per_replica_batch_size: Examples that one replica takes in one step. Default 32.
          train_steps: Training steps in all. Exactly one of `train_steps` and `epochs` for `build_model`; 0 is not set.
          epochs: Times that each example is seen.
          eval_steps: Batches of each evaluation; 0 for the whole split. Default 0.
          precision: `float32`, `mixed_float16` or `mixed_bfloat16`. Default `float32`.
          learning_rate_scaling: What the replicas do to the learning rate of `build_model`: `none`, `linear` (times their
            number) or `sqrt` (times its square root). Default `none`.
          warmup_steps: Training steps in which the learning rate rises, evenly, to its value. Default 0.
          seed: Seed of initial weights and shuffling. Default 0.
          devices: Names of the devices to train on, such as `GPU:0,GPU:2`, in place of `accelerator_count`, under
            `one_device`, `mirrored` and `central_storage`. Default: the first ones.
          num_evaluators: 1 for a process that evaluates beside the training ones of `multi_worker_mirrored` and
            `parameter_server`. Default 0.
          partition_min_bytes: Variables are divided among parameter servers into parts of at least so many bytes. Default
            0: each is whole.
          mesh: Devices of `model_parallel`, `BATCHxMODEL` such as `2x4`. Default: all of them along the batch.
          layout_rules: Which dimension of which variables is divided along which dimension of the mesh, such as
            `kernel = unsharded, model; bias = model`; see `trainer_module.layout`. Default: none.
          tpu: TPU of the strategy `tpu`: a name, a `grpc://` address, or `local` for a TPU VM's own. Default `local`.
          keras_version: Generation of Keras that `tf.keras` is in the module, 2 or 3. Default 2.
          global_clipnorm: Norm over all variables that gradients are clipped to. Default 0: none.
          gradient_accumulation_steps: Batches of each replica whose gradients are summed for one training step; the global
            batch is that much larger. Default 1.
          jit_compile: Whether XLA compiles the computation of gradients; as a RuntimeParameter, 0 or 1. Default False.
          steps_per_execution: Training steps of one TensorFlow call; callbacks hear of batches once a call. Default 0: as
            many as take half a second.
          profile_steps: First and last training step that the TensorBoard profiler watches, such as `100,120`. Default:
            none.
          drop_remainder: Whether all batches have the same size; what is left of an epoch then goes into the next one; as a
            RuntimeParameter, 0 or 1. Default False: epochs see each example once, in batches that are smaller by a little.
          shuffle_buffer_size: Examples that are shuffled among each other, over all processes. Default 0: as many as
            64 MiB hold, at most 10,000.
          cycle_length: Files that a process reads at a time, at most. Default 64.
          num_parallel_calls: Threads that read, and threads that parse. Default 0: tf.data decides.
          prefetch_buffer_size: Batches that are made ahead. Default 0: tf.data decides.
          cache: Whether a process keeps what it has read in memory: `memory`, `none`, or `auto` for `memory` where that is
            at most 512 MiB. Default `auto`.
          max_corrupt_records: Records that cannot be read and are left out, at most. Default 0.
          save_checkpoints_secs: Seconds between two saves of the training state of `build_model`; 0 saves by
            `save_checkpoints_steps` alone. Default 60.
          save_checkpoints_steps: Training steps between two saves; 0 saves by `save_checkpoints_secs` alone. Default 0.
          heartbeat_timeout_secs: Seconds without a sign of life after which a process counts as lost. Default 10.
          max_restarts: How often a cluster that lost a process is started again, from the last save. Default 3.
          progress_timeout_secs: Seconds without progress after which a training process counts as stuck; 0 for no limit.
            Default 3600.
          checkpoint_dir: Folder of training states, which all machines of the cluster share. Each run has a folder in it,
            called after its inputs, until it has ended well. Default: `.checkpoints` beside the component's outputs.
          launcher: Where training runs, as `launchers.settings.to_json` writes it. Default: in the step, or beside
            the executor.

        Raises:
          ConfigurationError: The arguments contradict each other, as far as they are values; what a RuntimeParameter
            brings is checked when the component runs.
        """
        if sum(map(bool, (module_file, run_fn, build_model))) != 1:
            raise ConfigurationError("Trainer: exactly one of module_file, run_fn and build_model must be supplied")
        if bool(examples) == bool(transformed_examples):
            raise ConfigurationError("Trainer: exactly one of examples and transformed_examples must be supplied")
        if transformed_examples and not transform_graph:
            raise ConfigurationError("Trainer: transformed_examples needs transform_graph")
        if build_model and label is None:
            raise ConfigurationError("Trainer: build_model needs label, the name of the feature that the model predicts")
        parameters = {
            "strategy": strategy,
            "num_workers": num_workers,
            "num_parameter_servers": num_parameter_servers,
            "accelerator_type": accelerator_type,
            "accelerator_count": accelerator_count,
            "all_reduce": all_reduce,
            "per_replica_batch_size": per_replica_batch_size,
            "train_steps": train_steps,
            "epochs": epochs,
            "eval_steps": eval_steps,
            "precision": precision,
            "learning_rate_scaling": learning_rate_scaling,
            "warmup_steps": warmup_steps,
            "seed": seed,
            "devices": devices,
            "num_evaluators": num_evaluators,
            "partition_min_bytes": partition_min_bytes,
            "mesh": mesh,
            "layout_rules": layout_rules,
            "tpu": tpu,
            "keras_version": keras_version,
            "global_clipnorm": global_clipnorm,
            "gradient_accumulation_steps": gradient_accumulation_steps,
            "jit_compile": jit_compile,
            "steps_per_execution": steps_per_execution,
            "profile_steps": profile_steps,
            "drop_remainder": drop_remainder,
            "shuffle_buffer_size": shuffle_buffer_size,
            "cycle_length": cycle_length,
            "num_parallel_calls": num_parallel_calls,
            "prefetch_buffer_size": prefetch_buffer_size,
            "cache": cache,
            "max_corrupt_records": max_corrupt_records,
            "save_checkpoints_secs": save_checkpoints_secs,
            "save_checkpoints_steps": save_checkpoints_steps,
            "heartbeat_timeout_secs": heartbeat_timeout_secs,
            "max_restarts": max_restarts,
            "progress_timeout_secs": progress_timeout_secs,
        }
        parameters = {name: int(value) if isinstance(value, bool) else value for name, value in parameters.items()}
        _check(parameters)
        properties = {**parameters, "custom_config": _as_json(custom_config), "hparams": _as_json(hparams or {})}
        known = {name: value for name, value in properties.items() if not isinstance(value, data_types.RuntimeParameter)}
        kind = _kind_of_function(module_file, run_fn, build_model)
        if kind:
            job_builder.check_function(kind, known, base_model=bool(base_model))
        spec = TrainerSpec(
            examples=examples or transformed_examples,
            transform_graph=transform_graph,
            schema=schema,
            base_model=base_model,
            hyperparameters=hyperparameters,
            train_args=train_args or trainer_pb2.TrainArgs(),
            eval_args=eval_args or trainer_pb2.EvalArgs(),
            module_file=module_file,
            run_fn=run_fn,
            build_model=build_model,
            module_fingerprint=module_fingerprint,
            label=label,
            example_weight=example_weight,
            checkpoint_dir=checkpoint_dir,
            launcher=launcher,
            model=types.Channel(type=standard_artifacts.Model),
            model_run=types.Channel(type=standard_artifacts.ModelRun),
            **properties,
        )
        super().__init__(spec=spec, custom_executor_spec=custom_executor_spec)
        if udf_utils.should_package_user_modules():
            # As in TFX's Trainer: the file travels to remote runners as a wheel, called after its content.
            udf_utils.add_user_module_dependency(
                self, standard_component_specs.MODULE_FILE_KEY, standard_component_specs.MODULE_PATH_KEY
            )


def _as_json(value: Any) -> Any:
    return value if isinstance(value, data_types.RuntimeParameter) else json_utils.dumps(value)


def _kind_of_function(module_file: Text | None, run_fn: Text | None, build_model: Text | None) -> str | None:
    """Returns `run_fn` or `build_model`; None if that is only known when the component runs."""
    if not module_file:
        return "run_fn" if run_fn else "build_model"
    if isinstance(module_file, str) and os.path.isfile(module_file):
        return module_loader.training_function(module_loader.top_level_names(module_file), module_file)
    return None


def _check(parameters: dict[str, Any]) -> None:
    """Refuses what is known to be wrong before the pipeline runs: all of it, where no value is left for run time."""
    if not any(isinstance(value, data_types.RuntimeParameter) for value in parameters.values()):
        strategy_table.check(*job_builder.training_parameters(parameters))
