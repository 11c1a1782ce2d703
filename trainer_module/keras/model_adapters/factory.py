"""Chooses the adapter for what `build_model` returned."""

import warnings
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras import keras_models, optimizers
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.keras.model_adapters.compiled import CompiledKeras3Model, CompiledModel
from tfx_distribute.trainer_module.keras.model_adapters.task import TaskAdapter
from tfx_distribute.trainer_module.user_code.task import Task

# TensorFlow Addons has optimizers with a minimize that does nothing of its own.
_LIBRARIES = {"keras", "tensorflow", "tensorflow_addons", "tf_keras"}


def make(returned: Any, function: str) -> ModelAdapter:
    """Makes the adapter for what `build_model` returned.

    Call this in the strategy's scope.

    Raises:
      ConfigurationError: The value is neither a compiled Keras model nor a task, or it
        changes a method of Keras that is not called here.
    """
    if isinstance(returned, tf.keras.Model):
        if not returned.optimizer:
            raise ConfigurationError(
                f"module: {function} returned a model that is not compiled; call model.compile(...) in it"
            )
        _check_has_call(returned)
        _check_loop(returned)
        adapter = CompiledKeras3Model(returned) if keras_models.is_keras_3() else CompiledModel(returned)
        if not adapter.applies_gradients:
            _check_minimize(adapter.optimizer)
        return adapter
    if not (_defines_step(returned, "train_step") and _defines_step(returned, "eval_step")):
        kind = f"{type(returned).__module__}.{type(returned).__name__}"
        raise ConfigurationError(
            f"module: {function} returned {kind}; return a compiled {keras_models.generation()} model, or a task with "
            "train_step and eval_step"
        )
    if not isinstance(getattr(returned, "model", None), tf.keras.Model) or not getattr(returned, "optimizer", None):
        raise ConfigurationError(
            f"module: the task that {function} returned lacks model, a {keras_models.generation()} model, or optimizer; "
            f"set both in {type(returned).__name__}.__init__"
        )
    _check_has_call(returned.model)
    _check_minimize(returned.optimizer)
    return TaskAdapter(returned)


def _check_has_call(model: tf.keras.Model) -> None:
    if type(model).call is tf.keras.Model.call:
        name = type(model).__name__
        raise ConfigurationError(
            f"module: the model {name} has no call, so it cannot be served; write "
            f"def call(self, features) in {name}, which returns what a request to the model gets"
        )


def _check_loop(model: tf.keras.Model) -> None:
    """Checks that a model's class does not change the loop of `fit`, which is not used.

    Warns of a `fit`: the models of some libraries only prepare its arguments there.
    """
    name = type(model).__name__
    if _is_users(model, "fit"):
        warnings.warn(
            f"module: the model {name} has a fit of its own, which is not called here; if it does more than call Keras's "
            "fit, write a train_step, or callbacks for what happens between steps",
            stacklevel=1,
        )
    changed = next((method for method in ("make_train_function", "make_test_function") if _is_users(model, method)), None)
    if changed:
        step = "test_step" if "test" in changed else "train_step"
        raise ConfigurationError(
            f"module: the model {name} has a {changed} of its own, which is not called here, because the steps run without "
            f"fit; write def {step}(self, data) in {name}, or a task with train_step and eval_step, and callbacks for "
            "what happens between steps"
        )


def _check_minimize(optimizer: Any) -> None:
    inner = optimizers.unwrap(optimizer)
    if _is_users(inner, "minimize"):
        name = type(inner).__name__
        raise ConfigurationError(
            f"module: the optimizer {name} has a minimize of its own, which is not called here, because gradients are "
            f"summed over replicas before they are applied; write def apply_gradients or compute_gradients in {name}, or "
            "call minimize in a train_step of the model's own"
        )


def _is_users(instance: Any, method: str) -> bool:
    """Returns True if the class that defines a method is not of Keras or TensorFlow."""
    owner = next((each for each in type(instance).__mro__ if method in vars(each)), None)
    return owner is not None and owner.__module__.partition(".")[0] not in _LIBRARIES


def _defines_step(returned: Any, name: str) -> bool:
    return callable(getattr(returned, name, None)) and getattr(type(returned), name, None) is not getattr(Task, name)
