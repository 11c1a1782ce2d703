"""Converts functions of the training loop with AutoGraph before a process is forked.

AutoGraph rewrites the source of each function that TensorFlow traces, which takes more
than a second in each training process, a third of the time of a short training. It
keeps the results in its process, so forks of one that has them need not repeat it.
"""

import contextlib
import tempfile
from collections.abc import Callable
from typing import Any

from tfx_distribute.trainer_module.data.example_functions import ExampleFunctions
from tfx_distribute.trainer_module.export import SignatureFunctions
from tfx_distribute.trainer_module.keras import loss_reduction, optimizers
from tfx_distribute.trainer_module.keras.keras_models import is_keras_3
from tfx_distribute.trainer_module.keras.model_adapters import batches
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.keras.model_adapters.compiled import CompiledModel
from tfx_distribute.trainer_module.keras.model_adapters.compiled_keras_3 import CompiledKeras3Model
from tfx_distribute.trainer_module.keras.model_adapters.task import TaskAdapter
from tfx_distribute.trainer_module.loop import gradients
from tfx_distribute.trainer_module.loop.coordinator_steps import CoordinatorStepRunner
from tfx_distribute.trainer_module.loop.mesh_steps import MeshStepRunner
from tfx_distribute.trainer_module.loop.step_runner import StepRunner

# Passed to `tf.function`. AutoGraph converts such functions separately.
TRACED: tuple[Callable[..., Any], ...] = (
    StepRunner._train_on_all,
    StepRunner._evaluate,
    MeshStepRunner._gradients,
    MeshStepRunner._apply,
    MeshStepRunner._eval_step,
    CoordinatorStepRunner._train_part,
    CoordinatorStepRunner._evaluate_part,
    CompiledModel.metrics,
    TaskAdapter.metrics,
    ModelAdapter._predict,
    SignatureFunctions.serve_examples,
    SignatureFunctions.serve,
    SignatureFunctions.transform_features,
    SignatureFunctions.transformed_labels,
)
# Called by those.
CALLED: tuple[Callable[..., Any], ...] = (
    StepRunner._train,
    StepRunner._take_step,
    StepRunner._run,
    StepRunner._zero_losses,
    StepRunner._whole_step,
    StepRunner._gradients,
    StepRunner._apply,
    StepRunner._eval_step,
    gradients.compute,
    gradients.apply,
    optimizers.unwrap,
    loss_reduction.replica_loss,
    loss_reduction.replica_mean,
    batches.size,
    CompiledModel.train_step,
    CompiledModel.eval_step,
    TaskAdapter.train_step,
    TaskAdapter.eval_step,
    TaskAdapter._all_metrics,
    ExampleFunctions.decode_batch,
    SignatureFunctions._serve,
    SignatureFunctions._decode_targets,
)
# Called by those, in the adapter for one generation of Keras.
OF_ADAPTER = ("_loss", "_loss_metric", "_update_metrics")


def convert() -> None:
    """Converts the functions that most trainings trace.

    Runs no TensorFlow operation. Does nothing if AutoGraph, whose caches are private,
    does not look as expected: then each process converts what it needs.
    """
    try:
        from tensorflow.python.autograph.core import converter
        from tensorflow.python.autograph.impl import api
    except ImportError:
        return
    adapter = CompiledKeras3Model if is_keras_3() else CompiledModel
    of_adapter = [getattr(adapter, name) for name in OF_ADAPTER]
    # AutoGraph leaves the files that it imports the results from.
    with contextlib.suppress(AttributeError, TypeError, OSError), tempfile.TemporaryDirectory() as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            for functions, is_traced in ((TRACED, True), ((*CALLED, *of_adapter), False)):
                options = converter.ConversionOptions(recursive=True, optional_features=None, user_requested=is_traced)
                for function in functions:
                    api._convert_actual(function, converter.ProgramContext(options=options))
        finally:
            tempfile.tempdir = before
