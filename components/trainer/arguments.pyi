# Generated from trainer_module/job/parameters.py by `make generated`; do not edit.
from typing import TypedDict

from tfx.orchestration.data_types import RuntimeParameter

class TrainerArguments(TypedDict, total=False):
    strategy: str | RuntimeParameter | None
    """The `tf.distribute` strategy to train under. `auto` chooses one that suits the
    workers and devices; `tfx-distribute plan` shows which one, and why. Default:
    "default"."""
    num_workers: int | RuntimeParameter | None
    """Number of training processes. Under `multi_worker_mirrored` the chief is one
    of them; under `parameter_server` the chief only coordinates and comes on top.
    All other strategies train in one process. Default: 1."""
    num_parameter_servers: int | RuntimeParameter | None
    """Number of parameter servers, for `parameter_server` only; 0 starts one.
    Default: 0."""
    accelerator_type: str | RuntimeParameter | None
    """Kind of device to train on. `auto` uses the GPUs that a process sees, or its
    CPU if there are none. With `tpu`, leave it at `auto`. Default: "auto"."""
    accelerator_count: int | RuntimeParameter | None
    """Number of devices per training process. With 0, `default`, `one_device` and
    `parameter_server` use one device, and the other strategies use all GPUs that
    the process sees, or else its CPU as one device. On a CPU it is the number of
    logical devices, so that `mirrored` can be tried without a GPU. Default: 0."""
    all_reduce: str | RuntimeParameter | None
    """How replicas sum their gradients; `auto` leaves it to TensorFlow. `mirrored`
    takes `nccl`, `hierarchical_copy` and `reduction_to_one_device`;
    `multi_worker_mirrored` takes `ring`, `nccl` and, on Vertex AI,
    `reduction_server`. Default: "auto"."""
    partition_min_bytes: int | RuntimeParameter | None
    """Smallest part, in bytes, that a variable is divided into among the parameter
    servers of `parameter_server`; 0 keeps each variable whole. Default: 0."""
    mesh: str | RuntimeParameter | None
    """Devices of `model_parallel` as `BATCHxMODEL`, such as `2x4`: examples are
    divided along the first dimension, variables along the second. Empty uses all
    devices along the batch. Default: ""."""
    layout_rules: str | RuntimeParameter | None
    """How `model_parallel` divides variables along the dimensions of the mesh, such
    as `kernel = unsharded, model; bias = model`: regular expressions for names of
    variables, each with `batch`, `model` or `unsharded` for every dimension. The
    first rule that matches counts; empty divides no variable. Default: ""."""
    tpu: str | RuntimeParameter | None
    """TPU of the strategy `tpu`: a name, a `grpc://` address, or `local` for the TPU
    of a TPU VM. Default: "local"."""
    per_replica_batch_size: int | RuntimeParameter | None
    """Number of examples that one replica takes in one batch. The global batch is
    this, times the replicas that train in step, times
    `gradient_accumulation_steps`. Default: 32."""
    train_steps: int | RuntimeParameter | None
    """Number of training steps in all; 0 lets `epochs` decide. `build_model` needs
    exactly one of the two. Default: 0."""
    epochs: int | RuntimeParameter | None
    """Number of times that each example is seen; 0 lets `train_steps` decide.
    `build_model` needs exactly one of the two. Default: 0."""
    steps_per_epoch: int | RuntimeParameter | None
    """Number of training steps in one Keras epoch, for `train_steps`: after each
    epoch, the model is evaluated and the epoch hooks of callbacks are called. 0
    makes all of `train_steps` one epoch. With `epochs`, an epoch is always one
    pass over the examples. Default: 0."""
    validation_freq: int | RuntimeParameter | None
    """Number of epochs from one evaluation during training to the next, as in
    Keras's `fit`. Default: 1."""
    eval_steps: int | RuntimeParameter | None
    """Number of batches in each evaluation during training; 0 evaluates on the whole
    split. Default: 0."""
    export_best: str | RuntimeParameter | None
    """Metric, such as `val_loss`: the model with its best value is exported, of
    those at the end of each epoch. Empty exports the last weights. Default: ""."""
    export_mode: str | RuntimeParameter | None
    """Whether the smallest or the largest value of `export_best` is the best. Empty
    is `min`, for a loss. Default: ""."""
    class_weight: str | RuntimeParameter | None
    """Weights of the classes in the training loss, such as `0: 1, 1: 2.5`, as in
    Keras's `fit`: each training example is weighted by the class that its label
    names. Classes that are not listed have weight 1; empty weights none. Default:
    ""."""
    precision: str | RuntimeParameter | None
    """Keras precision policy. `mixed_float16` needs a GPU, and is not available
    under `parameter_server`, `central_storage`, `tpu` and `model_parallel`.
    Default: "float32"."""
    learning_rate_scaling: str | RuntimeParameter | None
    """How to fit the learning rate of `build_model` to the global batch: `linear`
    multiplies it by the number of batches in a training step (replicas that train
    in step, times `gradient_accumulation_steps`), `sqrt` by the square root of
    that number; `none` keeps it. Default: "none"."""
    seed: int | RuntimeParameter | None
    """Seed of the initial weights, of shuffling and of dropout. Default: 0."""
    keras_version: int | RuntimeParameter | None
    """Generation of Keras that `tf.keras` is in the user's module. 3 is not
    available under `parameter_server`, `central_storage`, `tpu` and
    `model_parallel`. Default: 2."""
    gradient_accumulation_steps: int | RuntimeParameter | None
    """Number of batches per replica whose gradients are summed for one training
    step; the global batch grows by the same factor. While they are summed, the
    gradient of an embedding takes as much memory as its whole table. Not
    available under `parameter_server` and `model_parallel`. Default: 1."""
    jit_compile: bool | RuntimeParameter | None
    """Compiles the computation of gradients with XLA. Not available under
    `parameter_server`, `central_storage` and `model_parallel`. Default: False."""
    steps_per_execution: int | RuntimeParameter | None
    """Number of training steps in one TensorFlow call; 0 runs as many as take about
    half a second, or one if a callback has batch hooks. Batch hooks are called
    once per TensorFlow call. Write 1 if the model exchanges values between
    replicas, as a contrastive loss over the global batch does. Default: 0."""
    profile_steps: str | RuntimeParameter | None
    """First and last training step to record with the TensorBoard profiler, such as
    `100,120`; empty records none. Default: ""."""
    drop_remainder: bool | RuntimeParameter | None
    """Gives all batches the same size; examples left over at the end of an epoch go
    into the next one. Without it, each epoch sees every example once, in batches
    that are slightly smaller where needed. Always on under `tpu` and
    `model_parallel`. Default: False."""
    shuffle_buffer_size: int | RuntimeParameter | None
    """Number of examples that are shuffled together, over all processes; 0 takes as
    many as fit in 64 MiB, at most 10,000. Default: 0."""
    cycle_length: int | RuntimeParameter | None
    """Largest number of files that a process reads at the same time. Default: 64."""
    cache: str | RuntimeParameter | None
    """`memory` keeps the examples that a process has read in its memory, `none`
    reads them again in each epoch; `auto` keeps them if a process reads at most
    512 MiB. Default: "auto"."""
    save_checkpoints_secs: int | RuntimeParameter | None
    """Seconds between two saves of the training state; 0 saves by
    `save_checkpoints_steps` alone. Default: 60."""
    save_checkpoints_steps: int | RuntimeParameter | None
    """Number of training steps between two saves of the training state; 0 saves by
    `save_checkpoints_secs` alone. Default: 0."""
    heartbeat_timeout_secs: int | RuntimeParameter | None
    """Seconds without a heartbeat after which a training process counts as lost.
    Default: 10."""
    max_restarts: int | RuntimeParameter | None
    """Largest number of times in a row that a cluster which lost a process is
    restarted from the last save. The count begins again once training has
    advanced since the last restart. 0 never restarts. Default: 3."""
    progress_timeout_secs: int | RuntimeParameter | None
    """Seconds without progress after which a training process counts as stuck; 0 for
    no limit. Default: 3600."""
