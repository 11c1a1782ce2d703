"""Runs TFX modules that train by themselves with `run_fn(fn_args)`.

This is the only code in `trainer_module` that loads TFX, and only when such a module
runs: `FnArgs` is TFX's own class, filled by TFX's own function, so that a module gets
exactly what the stock Trainer would give it.
"""

import contextlib
import os
import time

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import tasks_of
from tfx_distribute.trainer_module.job.training_job import RunFn, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.strategies import factory
from tfx_distribute.trainer_module.user_code import module_loader

# What Keras's `fit` says of an empty dataset, and TensorFlow of too few files, of which
# either comes first.
_EMPTY = ("Empty logs", "Could not apply FILE based sharding")
_NO_EXAMPLES = (
    "module: fit got no examples in this process of {function}: TensorFlow divides the files of a dataset among the "
    "processes, and there are fewer files than processes, or too few examples for steps_per_epoch; write "
    "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA for the dataset, or "
    "put a Sharder before the Trainer (docs/migrating.md, Share the data among several workers)"
)


def run(job: TrainingJob, arguments: RunFn, strategy: tf.distribute.Strategy, is_chief: bool) -> TrainingResult:
    """Calls the module's `run_fn`.

    Only the chief's model is kept. The numbers of the result are 0 but for the replicas
    and the duration, because only the module knows them.
    """
    from tfx.components.trainer import fn_args_utils
    from tfx.types import artifact_utils
    from tfx.utils import path_utils

    fn_args = fn_args_utils.get_common_fn_args(
        artifact_utils.parse_artifact_dict(arguments.inputs), dict(arguments.exec_properties)
    )
    fn_args.transform_output = fn_args.transform_graph_path
    fn_args.schema_file = fn_args.schema_path
    fn_args.hyperparameters = arguments.hyperparameters
    if arguments.num_examples is not None:
        fn_args.num_examples = dict(arguments.num_examples)
    fn_args.serving_model_dir = job.outputs.serving_model_dir
    fn_args.eval_model_dir = path_utils.eval_model_dir(os.path.dirname(job.outputs.serving_model_dir))
    fn_args.model_run_dir = job.outputs.model_run_dir
    has_peers = len(tasks_of(job.distribution)) > 1
    with factory.refusing_own_strategies(job.module.function) if has_peers else contextlib.nullcontext():
        function = module_loader.load(job.module)
        start = time.monotonic()
        try:
            function(fn_args)
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            if has_peers and any(words in str(error) for words in _EMPTY):
                raise ConfigurationError(_NO_EXAMPLES.format(function=job.module.function)) from error
            if has_peers and "unsupported type" in str(error) and job.training_options.keras_version == 3:
                raise ConfigurationError("keras_version: fit of Keras 3 fails with several workers; write 2") from error
            raise
    if is_chief and not tf.io.gfile.exists(fn_args.serving_model_dir):
        raise ConfigurationError(f"module: {job.module.function} returned without a model in fn_args.serving_model_dir")
    if has_peers and not factory.was_asked_for():
        raise ConfigurationError(
            f"module: {job.module.function} did not train one model with all processes of the cluster: it did not take "
            "the strategy made for it; call tfx_distribute.trainer_module.get_strategy() and build the model in its scope()"
        )
    return TrainingResult(
        num_replicas=strategy.num_replicas_in_sync,
        global_batch_size=0,
        train_steps=0,
        seconds=time.monotonic() - start,
        metrics={},
    )
