"""How single kinds of models are compared with `fit` otherwise than the rest.

The kinds themselves are in `kinds`. Importing this module does not import TensorFlow.
"""

# The kind to train with `fit` instead. `fit` has no tasks, and accumulates
# differently.
REFERENCES = {
    "task": "dense",
    "task_with_loss_object": "dense",
    "adam_with_repeated_rows": "adam_on_a_dense_table",  # under `fit`, Keras 3 trains repeated rows incorrectly
    "accumulated": "dense",
    "accumulated_sum": "sum_loss",
    "accumulated_per_example": "loss_per_example",
    "accumulated_rows": "embedding_sparse",
}
# Training options that differ from those of the other kinds.
OPTIONS = {
    "accumulated": {"gradient_accumulation_steps": 2},
    "accumulated_sum": {"gradient_accumulation_steps": 2},
    "accumulated_per_example": {"gradient_accumulation_steps": 2},
    "accumulated_rows": {"gradient_accumulation_steps": 2},
    # The user's own step and a scalar metric cannot weight replicas whose batches have
    # different sizes.
    "scalar_loss": {"drop_remainder": True},
    "own_steps": {"drop_remainder": True},
    "own_steps_run_eagerly": {"drop_remainder": True},
    "own_steps_that_rename": {"drop_remainder": True},
    "own_metrics": {"drop_remainder": True},
    "no_label_own_steps": {"drop_remainder": True},
    # The saved random state is that of the first replica. Others that have had batches
    # of different sizes have another one.
    "dropout": {"drop_remainder": True},
    "mixed_bfloat16": {"precision": "mixed_bfloat16"},
    "mixed_float16": {"precision": "mixed_float16"},
}
# The data of kinds that do not predict "y" with equal weights.
DATA = {
    "one_hot_label": {"label": "hot"},
    "example_weights": {"example_weight": "weight"},
    "step_weights": {"label": "ids", "example_weight": "hot"},
    "several_labels": {"label": {"first": "y", "second": "hot"}},
    "several_weights": {
        "label": {"first": "y", "second": "hot"},
        "example_weight": {"first": "weight", "second": "spike"},
    },
    "no_label": {"label": None},
    "added_loss_per_example": {"label": None},
    "own_apply_gradients": {"label": "z"},
    "no_label_own_steps": {"label": None},
    "autoencoder": {"label": "x"},
    "decoded_images": {"schema": "stored.pbtxt"},
    "decoded_text": {"schema": "stored.pbtxt"},
}
# Largest differences that count as none, of weights and of logs, where they are not the
# usual ones. A bfloat16 number has 8 bits: replicas round their sums of gradients.
TOLERANCES = {
    "mixed_bfloat16": (5e-3, 3e-2),
    "mixed_float16": (5e-4, 3e-3),
}
# Kinds that are compared with an uninterrupted training by the loop, because `fit`
# draws other random numbers.
NOISY = {"dropout"}
# Logs that are not compared. Of a value that the user's own step logs, `fit` shows the
# last one and the loop the mean. Sums and scalars of an evaluation have the same weight
# on all replicas, even if their batches differ by an example.
IGNORED_LOGS = {
    "own_steps": {"own_loss", "val_own_loss"},
    "own_steps_run_eagerly": {"own_loss", "val_own_loss"},
    "several_labels": {"first_loss", "second_loss", "val_first_loss", "val_second_loss"},
    "several_weights": {"first_loss", "second_loss", "val_first_loss", "val_second_loss"},
    "no_label": {"loss", "val_loss"},
    "loss_per_example": {"loss", "val_loss"},
    "added_loss_per_example": {"loss", "val_loss"},
    "no_label_own_steps": {"own_loss", "val_own_loss"},
    "sum_loss": {"val_loss"},
    "accumulated_sum": {"val_loss"},
    "accumulated_per_example": {"loss", "val_loss"},
    "scalar_loss": {"val_loss", "val_error"},
}
# Logs that Keras 2 lacks under `fit`, because a custom loss has no metric.
EXTRA_LOGS = {"two_outputs": {"loss", "val_loss"}, "loss_of_one_element": {"loss", "val_loss"}}
# How these kinds are compared, and why, for docs/models.md.
NOTES = {
    "task": "Compared with `dense`. A task may read every feature, and some are sparse.",
    "task_with_loss_object": "Compared with `dense`. A task may read every feature, and some are sparse.",
    "adam_with_repeated_rows": "Compared with the next: Keras 3 trains repeated rows incorrectly under `fit`.",
    "accumulated": "Compared with `dense` and batches of twice the size.",
    "accumulated_sum": "Compared with `sum_loss` and batches of twice the size, without `val_loss`.",
    "accumulated_per_example": "Compared with `loss_per_example` and batches of twice the size, without `loss`.",
    "accumulated_rows": "Compared with `embedding_sparse` and batches of twice the size.",
    "dropout": (
        "Compared with an uninterrupted training by this package: `fit` draws other random numbers. All batches have the "
        "same size."
    ),
    "scalar_loss": "All batches have the same size. `val_loss` and `val_error` are not compared.",
    "own_steps": "All batches have the same size. Values that its steps log are not compared: `fit` shows the last one.",
    "own_steps_run_eagerly": (
        "All batches have the same size. Values that its steps log are not compared: `fit` shows the last one."
    ),
    "several_labels": "The losses of single outputs are not compared: under `fit`, Keras 3 averages batches of any size.",
    "several_weights": "The losses of single outputs are not compared: under `fit`, Keras 3 averages batches of any size.",
    "own_steps_that_rename": "All batches have the same size.",
    "loss_per_example": "`loss` is not compared: Keras 2 weights batches by the squares of their sizes.",
    "added_loss_per_example": "`loss` is not compared: under `fit`, Keras 2 averages batches of any size.",
    "no_label": "`loss` is not compared: under `fit`, Keras 2 averages batches of any size.",
    "no_label_own_steps": (
        "All batches have the same size. Values that its steps log are not compared: `fit` shows the last one."
    ),
    "own_metrics": "All batches have the same size.",
    "sum_loss": "`val_loss` is not compared: replicas weigh the same even if their batches differ in size.",
    "loss_of_one_element": "`loss` is not compared: Keras 2 does not log it under `fit`.",
    "two_outputs": "`loss` is not compared: Keras 2 does not log it under `fit`.",
    "mixed_bfloat16": "Differences of up to 0.005 (weights) and 0.03 (logs) count as none.",
    "mixed_float16": "Differences of up to 0.0005 (weights) and 0.003 (logs) count as none.",
}
