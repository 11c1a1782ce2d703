"""Defines a model of each kind that the oracle compares with `fit`.

Each public function is a `build_model`.
"""

import tensorflow as tf

from tfx_distribute.trainer_module import Task

_keras_3 = tf.keras.Model.__module__.startswith("keras.")


def _network(*, head=1, **hidden_options):
    x = tf.keras.Input((4,), name="x")
    hidden = tf.keras.layers.Dense(6, activation="tanh", **hidden_options)(x)
    return {"x": x}, tf.keras.layers.Dense(head)(hidden)


def _sgd(**options):
    return tf.keras.optimizers.SGD(0.05, momentum=0.9, **options)


def _compiled(model, optimizer=None, loss="mse", metrics=("mae",), **options):
    options = {"jit_compile": False, **options}
    model.compile(optimizer or _sgd(), loss=loss, metrics=list(metrics) or None, **options)
    return model


def dense(context):
    return _compiled(tf.keras.Model(*_network()))


def adamw(context):
    optimizer = tf.keras.optimizers.AdamW(0.01, weight_decay=0.02, clipnorm=0.5)
    return _compiled(tf.keras.Model(*_network()), optimizer)


def global_clipnorm(context):
    return _compiled(tf.keras.Model(*_network()), _sgd(global_clipnorm=0.1))


def several_inputs(context):
    inputs, output = _network()
    other = tf.keras.Input((2,), name="z")
    return _compiled(tf.keras.Model({**inputs, "z": other}, output + tf.keras.layers.Dense(1)(other)))


def embedding(context):
    ids = tf.keras.Input((3,), name="ids", dtype="int64")
    rows = tf.keras.layers.Embedding(20, 4)(ids)
    return _compiled(tf.keras.Model({"ids": ids}, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(rows))))


def embedding_masked(context):
    ids = tf.keras.Input((3,), name="ids", dtype="int64")
    rows = tf.keras.layers.Embedding(20, 4, mask_zero=True)(ids)
    mean = tf.keras.layers.GlobalAveragePooling1D()(rows)
    return _compiled(tf.keras.Model({"ids": ids}, tf.keras.layers.Dense(1)(mean)))


class _Rows(tf.keras.layers.Layer):
    """Looks up rows of a table, or computes the same with a dense gradient."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def build(self, shape):
        self.table = self.add_weight(name="table", shape=(20, 4), initializer="ones")

    def call(self, ids):
        table = tf.convert_to_tensor(self.table) if self.dense else self.table
        if self.dense:
            return tf.matmul(tf.one_hot(ids, 20), table)
        return tf.nn.embedding_lookup(getattr(table, "value", table) if _keras_3 else table, ids)


def _adam_on_rows(dense):
    ids = tf.keras.Input((3,), name="ids", dtype="int64")
    rows = tf.keras.layers.Flatten()(_Rows(dense)(ids))
    model = tf.keras.Model({"ids": ids}, tf.keras.layers.Dense(1)(rows))
    return _compiled(model, tf.keras.optimizers.Adam(0.01))


def adam_with_repeated_rows(context):
    return _adam_on_rows(dense=False)


def adam_on_a_dense_table(context):
    return _adam_on_rows(dense=True)


class _Table(tf.keras.Model):
    """Computes the mean row of a variable number of ids."""

    def __init__(self, feature, size=20):
        super().__init__(name="mean_of_rows")
        self.feature = feature
        self.table = tf.keras.layers.Embedding(size, 4)
        self.head = tf.keras.layers.Dense(1)

    def call(self, features, training=False):
        ids = features[self.feature]
        if isinstance(ids, tf.SparseTensor):
            padded = tf.sparse.to_dense(ids, default_value=-1)
            is_id = tf.cast(padded >= 0, tf.float32)[:, :, tf.newaxis]
            rows = self.table(tf.maximum(padded, tf.zeros([], padded.dtype))) * is_id
            mean = tf.reduce_sum(rows, 1) / (tf.reduce_sum(is_id, 1) + 1.0)
        else:
            rows = ids.with_flat_values(self.table(ids.flat_values))
            mean = tf.reduce_sum(rows, 1) / (tf.cast(ids.row_lengths(), tf.float32)[:, tf.newaxis] + 1.0)
        return self.head(tf.ensure_shape(mean, [None, 4]))


def embedding_sparse(context):
    return _compiled(_Table("words"))


def embedding_ragged(context):
    return _compiled(_Table("rows"))


def embedding_large(context):
    """Uses a table that is too large to be summed as a dense gradient."""
    return _compiled(_Table("words", 300_000))


def batch_norm(context):
    x = tf.keras.Input((4,), name="x")
    normal = tf.keras.layers.BatchNormalization(synchronized=True)(tf.keras.layers.Dense(6)(x))
    return _compiled(tf.keras.Model({"x": x}, tf.keras.layers.Dense(1)(tf.keras.layers.Activation("tanh")(normal))))


def dropout(context):
    x = tf.keras.Input((4,), name="x")
    noisy = tf.keras.layers.GaussianNoise(0.1)(x)
    hidden = tf.keras.layers.Dropout(0.5)(tf.keras.layers.Dense(32, activation="tanh")(noisy))
    return _compiled(tf.keras.Model({"x": x}, tf.keras.layers.Dense(1)(hidden)))


class _Activity(tf.keras.layers.Layer):
    def call(self, values):
        self.add_loss(0.1 * tf.reduce_mean(tf.square(values)))
        return values


def regularised(context):
    inputs, output = _network(kernel_regularizer="l2")
    return _compiled(tf.keras.Model(inputs, _Activity()(output)))


class _Steps(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return tf.where(tf.cast(step, tf.float32) > 3.0, 0.01, 0.05)

    def get_config(self):
        return {}


def schedule(context):
    return _compiled(tf.keras.Model(*_network()), tf.keras.optimizers.SGD(_Steps(), momentum=0.9))


def use_ema(context):
    return _compiled(tf.keras.Model(*_network()), _sgd(use_ema=True, ema_momentum=0.8))


class _Spike(tf.keras.layers.Layer):
    """Adds nothing to its input; if `spike` is set, adds a gradient that overflows.

    The gradient overflows once a loss scale multiplies it.
    """

    def build(self, shape):
        self.factor = self.add_weight(name="by", shape=(), initializer="zeros")

    def call(self, inputs):
        values, spike = inputs
        factor = tf.convert_to_tensor(self.factor)
        return values + 1e30 * spike * (factor - tf.stop_gradient(factor))


def loss_scale_overflow(context):
    inputs, output = _network()
    spike = tf.keras.Input((1,), name="spike")
    scaled = tf.keras.mixed_precision.LossScaleOptimizer(_sgd(), initial_scale=2.0**60)
    return _compiled(tf.keras.Model({**inputs, "spike": spike}, _Spike()([output, spike])), scaled)


def scalar_loss(context):
    def loss(truth, prediction):
        return tf.reduce_mean(tf.square(truth - prediction))

    def error(truth, prediction):
        return tf.reduce_mean(tf.abs(truth - prediction))

    return _compiled(tf.keras.Model(*_network()), loss=loss, metrics=[error])


def sum_loss(context):
    loss = tf.keras.losses.MeanSquaredError(reduction="sum")
    return _compiled(tf.keras.Model(*_network()), tf.keras.optimizers.SGD(0.005), loss=loss)


def frozen(context):
    model = tf.keras.Model(*_network())
    model.layers[1].trainable = False
    return _compiled(model)


def run_eagerly(context):
    return _compiled(tf.keras.Model(*_network()), run_eagerly=True)


class _Unused(tf.keras.layers.Layer):
    def build(self, shape):
        self.unused = self.add_weight(name="unused", shape=(2,), initializer="ones")

    def call(self, values):
        return values


def missing_gradient(context):
    inputs, output = _network()
    return _compiled(tf.keras.Model(inputs, _Unused()(output)))


class _OwnLoss(tf.keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.reduce_mean(tf.square(y - y_pred[0])) + 0.5 * tf.reduce_mean(tf.abs(y - y_pred[1]))


def two_outputs(context):
    """Has two outputs and one label, which needs a custom loss under `fit`, too."""
    inputs, output = _network()
    model = _OwnLoss(inputs, [output, tf.keras.layers.Dense(1)(output)], name="own_loss")
    model.compile(_sgd(), jit_compile=False)
    return model


class _OwnStep(tf.keras.Model):
    def train_step(self, data):
        x, y = {"x": data[0]["x"]}, data[1]
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=prediction)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"own_loss": tf.reduce_mean(tf.square(y - prediction)), "answer": 42.0}

    def test_step(self, data):
        x, y = {"x": data[0]["x"]}, data[1]
        return {"own_loss": tf.reduce_mean(tf.square(y - self(x, training=False))), "answer": 43.0}


def own_steps(context):
    return _compiled(_OwnStep(*_network(), name="own_steps"), metrics=())


class _OwnMetrics(tf.keras.Model):
    def compute_metrics(self, x, y, y_pred, sample_weight):
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "answer": 42.0}


def own_metrics(context):
    return _compiled(_OwnMetrics(*_network(), name="own_metrics"))


class _Squares(Task):
    def __init__(self, loss):
        self.model = tf.keras.Model(*_network())
        self.optimizer = _sgd()
        self.loss = loss
        self.mae = tf.keras.metrics.MeanAbsoluteError("mae")
        self.metrics = [self.mae]

    def train_step(self, features, label):
        prediction = self.model({"x": features["x"]}, training=True)
        self.mae.update_state(label, prediction)
        return self.loss(label, prediction)

    def eval_step(self, features, label):
        prediction = self.model({"x": features["x"]}, training=False)
        self.mae.update_state(label, prediction)
        return self.loss(label, prediction)


def task(context):
    return _Squares(lambda truth, prediction: tf.reduce_mean(tf.square(truth - prediction)))


def task_with_loss_object(context):
    return _Squares(tf.keras.losses.MeanSquaredError())


def clipped(context):
    """Is clipped by the loop instead of the optimizer; see `OPTIONS`."""
    return dense(context)


def accumulated(context):
    return dense(context)


def accumulated_sum(context):
    return sum_loss(context)


def accumulated_rows(context):
    return embedding_sparse(context)


# Exceptions for single kinds.

# The kind to train with `fit` instead. `fit` has no tasks and no clipping by the loop,
# and accumulates differently.
REFERENCES = {
    "task": "dense",
    "task_with_loss_object": "dense",
    "clipped": "global_clipnorm",
    "adam_with_repeated_rows": "adam_on_a_dense_table",  # under `fit`, Keras 3 trains repeated rows incorrectly
    "accumulated": "dense",
    "accumulated_sum": "sum_loss",
    "accumulated_rows": "embedding_sparse",
}
# Training options that differ from those of the other kinds.
OPTIONS = {
    "clipped": {"global_clipnorm": 0.1},
    "accumulated": {"gradient_accumulation_steps": 2},
    "accumulated_sum": {"gradient_accumulation_steps": 2},
    "accumulated_rows": {"gradient_accumulation_steps": 2},
    # The user's own step and a scalar metric cannot weight replicas whose batches have
    # different sizes.
    "scalar_loss": {"drop_remainder": True},
    "own_steps": {"drop_remainder": True},
    "own_metrics": {"drop_remainder": True},
}
# Kinds that are compared with an uninterrupted training by the loop, because `fit`
# draws other random numbers.
NOISY = {"dropout"}
# Logs that are not compared. Of a value that the user's own step logs, `fit` shows the
# last one and the loop the mean. Sums and scalars of an evaluation have the same weight
# on all replicas, even if their batches differ by an example.
IGNORED_LOGS = {
    "own_steps": {"own_loss", "val_own_loss"},
    "sum_loss": {"val_loss"},
    "accumulated_sum": {"val_loss"},
    "scalar_loss": {"val_loss", "val_error"},
}
# Logs that Keras 2 lacks under `fit`, because a custom loss has no metric.
EXTRA_LOGS = {"two_outputs": {"loss", "val_loss"}}
KINDS = [
    name
    for name, value in list(globals().items())
    if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == __name__
]
