"""Calls the user's module: what it makes is trained in one process, and evaluated in another."""

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.job.step_plan import Plan
from tfx_distribute.trainer_module.job.training_job import TrainingJob
from tfx_distribute.trainer_module.training import model_adapters
from tfx_distribute.trainer_module.user_code import module_loader


def make_context(job: TrainingJob, features: Features, plan: Plan, is_chief: bool) -> module_loader.ModelContext:
    """What the module's functions are told."""
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


def build(job: TrainingJob, told: module_loader.ModelContext) -> model_adapters.ModelAdapter:
    """Has the module make its model or task. To be called in the strategy's scope.

    Raises:
      ConfigurationError: The module has no such function, or it returned something else.
    """
    if job.schedule.precision != "float32":
        tf.keras.mixed_precision.set_global_policy(job.schedule.precision)
    tf.keras.utils.set_random_seed(job.schedule.seed)
    build_model = module_loader.load(job.module)
    return model_adapters.make(build_model(told), job.module.function)
