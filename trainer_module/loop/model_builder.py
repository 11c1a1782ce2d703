"""Calls the user's module to build the model."""

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.step_plan import Plan
from tfx_distribute.trainer_module.job.training_job import TrainingJob
from tfx_distribute.trainer_module.keras import keras_models
from tfx_distribute.trainer_module.keras.model_adapters import factory
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.state.base_model import warm_start
from tfx_distribute.trainer_module.user_code import module_loader


def make_context(job: TrainingJob, features: Features, plan: Plan, is_chief: bool) -> module_loader.ModelContext:
    """Returns the argument of the functions in the user's module."""
    return module_loader.ModelContext(
        hparams=job.hparams,
        inputs=features.inputs(),
        label=features.label,
        transform_output=features.transform,
        num_replicas=plan.num_replicas,
        global_batch_size=plan.global_batch_size,
        train_steps=plan.train_steps,
        is_chief=is_chief,
        model_run_dir=job.outputs.model_run_dir,
    )


def build(job: TrainingJob, context: module_loader.ModelContext) -> ModelAdapter:
    """Sets precision and seed, calls the module's `build_model`, and freezes layers.

    Call this in the strategy's scope.
    """
    if job.training_options.precision != "float32":
        tf.keras.mixed_precision.set_global_policy(job.training_options.precision)
    tf.keras.utils.set_random_seed(job.training_options.seed % 2**32)  # NumPy takes seeds of 32 bits
    if not keras_models.is_keras_3():
        # Else layers such as dropout draw with operations that keep their own state. It
        # cannot be saved, and rounds of a loop use it in any order, so that the same
        # training has another result each time. DTensor does not support them.
        tf.keras.backend.experimental.enable_tf_random_generator()
    build_model = module_loader.load(job.module)
    try:
        returned = build_model(context)
    except ValueError as error:
        strategy_info = job.distribution.info
        if "Loss scaling is not supported" not in str(error) or "precision" not in strategy_info.refuses:
            raise
        raise ConfigurationError(
            f"module: {job.module.function} makes a LossScaleOptimizer, which strategy {strategy_info.name!r} cannot use: "
            f"{strategy_info.refuses['precision']}; leave it out there, or use another strategy"
        ) from error
    model_adapter = factory.make(returned, job.module.function)
    _check_batch_size(model_adapter.model)
    if job.base_model:
        warm_start.freeze(model_adapter.model, job.warm_start.freeze)
    return model_adapter


def _check_batch_size(model: tf.keras.Model) -> None:
    if isinstance(model, tf.keras.Sequential) and not any(getattr(layer, "stateful", False) for layer in model.layers):
        return  # without an input it keeps the size of the first batch, but takes any
    sizes = [spec.shape[0] for spec in keras_models.input_specs(model).values() if spec.shape.rank]
    size = next((size for size in sizes if size is not None), None)
    if size is not None:
        raise ConfigurationError(
            f"module: the model takes batches of {size} examples only, but batches differ in size; leave batch_size out of "
            "tf.keras.Input, and stateful layers out of the model"
        )
