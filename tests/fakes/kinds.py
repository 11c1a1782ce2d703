"""Defines a model of each kind that the oracle compares with `fit`.

Each public function is a `build_model`. The first line of its docstring describes the
model in docs/models.md; its subject is "the model".
"""

import types

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
    """Has one hidden dense layer."""
    return _compiled(tf.keras.Model(*_network()))


def adamw(context):
    """Uses AdamW with `weight_decay` and `clipnorm`."""
    optimizer = tf.keras.optimizers.AdamW(0.01, weight_decay=0.02, clipnorm=0.5)
    return _compiled(tf.keras.Model(*_network()), optimizer)


def global_clipnorm(context):
    """Clips gradients by their global norm in the optimizer."""
    return _compiled(tf.keras.Model(*_network()), _sgd(global_clipnorm=0.1))


def several_inputs(context):
    """Has two inputs."""
    inputs, output = _network()
    other = tf.keras.Input((2,), name="z")
    return _compiled(tf.keras.Model({**inputs, "z": other}, output + tf.keras.layers.Dense(1)(other)))


def embedding(context):
    """Embeds a fixed number of ids."""
    ids = tf.keras.Input((3,), name="ids", dtype="int64")
    rows = tf.keras.layers.Embedding(20, 4)(ids)
    return _compiled(tf.keras.Model({"ids": ids}, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(rows))))


def embedding_masked(context):
    """Embeds ids with `mask_zero`."""
    ids = tf.keras.Input((3,), name="ids", dtype="int64")
    rows = tf.keras.layers.Embedding(20, 4, mask_zero=True)(ids)
    mean = tf.keras.layers.GlobalAveragePooling1D()(rows)
    return _compiled(tf.keras.Model({"ids": ids}, tf.keras.layers.Dense(1)(mean)))


class Rows(tf.keras.layers.Layer):
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
    rows = tf.keras.layers.Flatten()(Rows(dense)(ids))
    model = tf.keras.Model({"ids": ids}, tf.keras.layers.Dense(1)(rows))
    return _compiled(model, tf.keras.optimizers.Adam(0.01))


def adam_with_repeated_rows(context):
    """Embeds ids that repeat within a batch; uses Adam."""
    return _adam_on_rows(dense=False)


def adam_on_a_dense_table(context):
    """Multiplies one-hot ids by a table; uses Adam."""
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
    """Embeds a variable number of ids, a sparse feature."""
    return _compiled(_Table("words"))


def embedding_ragged(context):
    """Embeds a variable number of ids, a ragged feature."""
    return _compiled(_Table("rows"))


def embedding_large(context):
    """Embeds sparse ids in a table too large to sum gradients densely."""
    return _compiled(_Table("words", 300_000))


def batch_norm(context):
    """Has a synchronized `BatchNormalization`."""
    x = tf.keras.Input((4,), name="x")
    normal = tf.keras.layers.BatchNormalization(synchronized=True)(tf.keras.layers.Dense(6)(x))
    return _compiled(tf.keras.Model({"x": x}, tf.keras.layers.Dense(1)(tf.keras.layers.Activation("tanh")(normal))))


def dropout(context):
    """Has `Dropout` and `GaussianNoise`."""
    x = tf.keras.Input((4,), name="x")
    noisy = tf.keras.layers.GaussianNoise(0.1)(x)
    hidden = tf.keras.layers.Dropout(0.5)(tf.keras.layers.Dense(32, activation="tanh")(noisy))
    return _compiled(tf.keras.Model({"x": x}, tf.keras.layers.Dense(1)(hidden)))


class _Activity(tf.keras.layers.Layer):
    def call(self, values):
        self.add_loss(0.1 * tf.reduce_mean(tf.square(values)))
        return values


def regularised(context):
    """Has an L2 regulariser and `add_loss`."""
    inputs, output = _network(kernel_regularizer="l2")
    return _compiled(tf.keras.Model(inputs, _Activity()(output)))


def legacy_optimizer(context):
    """Uses an optimizer of `tf.keras.optimizers.legacy`."""
    return _compiled(tf.keras.Model(*_network()), tf.keras.optimizers.legacy.Adam(0.01))


class _Centered(tf.keras.optimizers.SGD):
    def apply_gradients(self, grads_and_vars, name=None):
        pairs = [(each - tf.reduce_mean(each, axis=0, keepdims=True), variable) for each, variable in grads_and_vars]
        return super().apply_gradients(pairs)


def own_apply_gradients(context):
    """Uses an optimizer with its own `apply_gradients`, which centers gradients."""
    inputs, output = _network(head=2)
    return _compiled(tf.keras.Model(inputs, output), _Centered(0.05, momentum=0.9, name="centered"))


class Delegating(tf.keras.optimizers.SGD):
    def __init__(self, base):
        super().__init__(0.05, momentum=0.9)
        self.others = [base]

    def build(self, variables):
        super().build(variables)
        self.others[0].build(variables)

    def apply_gradients(self, grads_and_vars, **options):
        return self.others[0].apply_gradients(grads_and_vars, **options)


def delegating_optimizer(context):
    """Uses an optimizer that has another one apply the gradients."""
    return _compiled(tf.keras.Model(*_network()), Delegating(_sgd()))


class _Steps(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return tf.where(tf.cast(step, tf.float32) > 3.0, 0.01, 0.05)

    def get_config(self):
        return {}


def schedule(context):
    """Uses a learning rate schedule of its own."""
    return _compiled(tf.keras.Model(*_network()), tf.keras.optimizers.SGD(_Steps(), momentum=0.9))


def use_ema(context):
    """Uses `use_ema`, moving averages of the weights."""
    return _compiled(tf.keras.Model(*_network()), _sgd(use_ema=True, ema_momentum=0.8))


class Overflow(tf.keras.layers.Layer):
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
    """Uses a loss scale; one example's gradient overflows."""
    inputs, output = _network()
    spike = tf.keras.Input((1,), name="spike")
    scaled = tf.keras.mixed_precision.LossScaleOptimizer(_sgd(), initial_scale=2.0**60)
    return _compiled(tf.keras.Model({**inputs, "spike": spike}, Overflow()([output, spike])), scaled)


def scalar_loss(context):
    """Uses a loss and a metric that return one number per batch."""

    def loss(truth, prediction):
        return tf.reduce_mean(tf.square(truth - prediction))

    def error(truth, prediction):
        return tf.reduce_mean(tf.abs(truth - prediction))

    return _compiled(tf.keras.Model(*_network()), loss=loss, metrics=[error])


def sum_loss(context):
    """Uses a loss with `reduction="sum"`."""
    loss = tf.keras.losses.MeanSquaredError(reduction="sum")
    return _compiled(tf.keras.Model(*_network()), tf.keras.optimizers.SGD(0.005), loss=loss)


def loss_per_example(context):
    """Uses a loss with `reduction="none"`, which `fit` adds up."""
    loss = tf.keras.losses.MeanSquaredError(reduction="none")
    return _compiled(tf.keras.Model(*_network()), tf.keras.optimizers.SGD(0.005, momentum=0.9), loss=loss)


def frozen(context):
    """Has a layer that is not trainable."""
    model = tf.keras.Model(*_network())
    model.layers[1].trainable = False
    return _compiled(model)


def run_eagerly(context):
    """Is compiled with `run_eagerly`."""
    return _compiled(tf.keras.Model(*_network()), run_eagerly=True)


def several_labels(context):
    """Has two outputs with a label each, and `loss_weights`."""
    inputs, hidden = _network(head=2)
    outputs = {name: tf.keras.layers.Dense(size, name=name)(hidden) for name, size in (("first", 1), ("second", 3))}
    losses = {"first": "mse", "second": tf.keras.losses.CategoricalCrossentropy(from_logits=True)}
    model = tf.keras.Model(inputs, outputs)
    weights = {"first": 0.7, "second": 0.3}
    model.compile(_sgd(), loss=losses, loss_weights=weights, metrics={"first": ["mae"]}, jit_compile=False)
    return model


def step_weights(context):
    """Predicts a class for each step of a sequence, and each step has a weight."""
    ids = tf.keras.Input((3,), name="ids", dtype="int64")
    outputs = tf.keras.layers.Dense(20)(tf.keras.layers.Embedding(20, 4)(ids))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = tf.keras.Model({"ids": ids}, outputs)
    model.compile(_sgd(), loss=loss, weighted_metrics=["accuracy"], jit_compile=False)
    return model


def several_weights(context):
    """Has two outputs with a label and an example weight each."""
    return several_labels(context)


class _ReconstructionLoss(tf.keras.layers.Layer):
    def call(self, values):
        original, reconstructed = values
        self.add_loss(tf.reduce_mean(tf.square(original - reconstructed)))
        return reconstructed


def no_label(context):
    """Has no label: it uses `add_loss`."""
    inputs, output = _network(head=4)
    model = tf.keras.Model(inputs, _ReconstructionLoss()([inputs["x"], output]))
    model.compile(_sgd(), jit_compile=False)
    return model


class _LossPerExample(tf.keras.layers.Layer):
    def call(self, values):
        original, reconstructed = values
        self.add_loss(tf.reduce_mean(tf.square(original - reconstructed), axis=1))
        return reconstructed


def added_loss_per_example(context):
    """Passes a number for each example to `add_loss`, as with `ctc_batch_cost`."""
    inputs, output = _network(head=4)
    model = tf.keras.Model(inputs, _LossPerExample()([inputs["x"], output]))
    model.compile(tf.keras.optimizers.SGD(0.005, momentum=0.9), jit_compile=False)
    return model


class _Contrastive(tf.keras.Model):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self._contrast(data, training=True)
            of_replica = loss / tf.distribute.get_strategy().num_replicas_in_sync
        gradients = tape.gradient(of_replica, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"own_loss": loss}

    def test_step(self, data):
        return {"own_loss": self._contrast(data, training=False)}

    def _contrast(self, data, training):
        embedded = tf.math.l2_normalize(self({"x": data["x"]}, training=training), axis=1)
        return tf.reduce_mean(tf.square(tf.norm(embedded - data["x"][:, :2], axis=1)))


def no_label_own_steps(context):
    """Has no label, and its own `train_step` and `test_step`."""
    inputs, output = _network(head=2)
    model = _Contrastive(inputs, output, name="contrastive")
    model.compile(_sgd(), jit_compile=False)
    return model


def autoencoder(context):
    """Has an input that is also its label."""
    return _compiled(tf.keras.Model(*_network(head=4)))


class Unused(tf.keras.layers.Layer):
    def build(self, shape):
        self.unused = self.add_weight(name="unused", shape=(2,), initializer="ones")

    def call(self, values):
        return values


def missing_gradient(context):
    """Has a weight that the loss does not depend on."""
    inputs, output = _network()
    return _compiled(tf.keras.Model(inputs, Unused()(output)))


class _OwnLoss(tf.keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        losses = tf.square(y - y_pred[0]) + 0.5 * tf.abs(y - y_pred[1])
        return tf.nn.compute_average_loss(losses[:, 0])  # divides by the number of replicas


def two_outputs(context):
    """Has two outputs, one label and its own `compute_loss`."""
    inputs, hidden = _network(head=2)
    model = _OwnLoss(inputs, [tf.keras.layers.Dense(1)(hidden), tf.keras.layers.Dense(1)(hidden)], name="own_loss")
    model.compile(_sgd(), jit_compile=False)
    return model


class _KeepsDimensions(tf.keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.reduce_mean(tf.square(y - y_pred), keepdims=True)


def loss_of_one_element(context):
    """Has its own `compute_loss`, which returns a matrix of one element."""
    model = _KeepsDimensions(*_network(), name="keeps_dimensions")
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
    """Has its own `train_step` and `test_step`."""
    return _compiled(_OwnStep(*_network(), name="own_steps"), metrics=())


def own_steps_run_eagerly(context):
    """Has its own `train_step` and `test_step`, and `run_eagerly`."""
    return _compiled(_OwnStep(*_network(), name="own_steps"), metrics=(), run_eagerly=True)


class _RenamedResults(tf.keras.Model):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.total = tf.keras.metrics.Mean("total_loss")

    @property
    def metrics(self):
        return [self.total]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self._loss(data, training=True)
            of_replica = loss / tf.distribute.get_strategy().num_replicas_in_sync
        gradients = tape.gradient(of_replica, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self._log(loss, data)

    def test_step(self, data):
        return self._log(self._loss(data, training=False), data)

    def _loss(self, data, training):
        return tf.reduce_mean(tf.square(data[1] - self({"x": data[0]["x"]}, training=training)))

    def _log(self, loss, data):
        self.total.update_state(loss, sample_weight=tf.shape(data[1])[0])
        return {"loss": self.total.result()}


def own_steps_that_rename(context):
    """Has its own `train_step` and `test_step`, which log a metric as `loss`."""
    model = _RenamedResults(*_network(), name="renamed_results")
    model.compile(_sgd(), jit_compile=False)
    return model


class _OwnMetrics(tf.keras.Model):
    def compute_metrics(self, x, y, y_pred, sample_weight):
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "answer": 42.0}


def own_metrics(context):
    """Has its own `compute_metrics`."""
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
    """Is trained by a task, which defines its own steps."""
    return _Squares(lambda truth, prediction: tf.reduce_mean(tf.square(truth - prediction)))


def task_with_loss_object(context):
    """Is trained by a task that uses a Keras loss object."""
    return _Squares(tf.keras.losses.MeanSquaredError())


def accumulated(context):
    """Sums the gradients of two batches for each step."""
    return dense(context)


def accumulated_sum(context):
    """Sums the gradients of two batches with `reduction="sum"`."""
    return sum_loss(context)


def accumulated_per_example(context):
    """Sums the gradients of two batches with `reduction="none"`."""
    return loss_per_example(context)


def accumulated_rows(context):
    """Sums the gradients of two batches of sparse ids."""
    return embedding_sparse(context)


def mixed_bfloat16(context):
    """Is trained with `precision: mixed_bfloat16`."""
    return dense(context)


def mixed_float16(context):
    """Is trained with `precision: mixed_float16`, which scales the loss."""
    return dense(context)


class _BranchOnStep(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        if step > 3:  # a tensor
            return 0.01
        return 0.05

    def get_config(self):
        return {}


def schedule_with_branch(context):
    """Uses a schedule with a Python `if` on a tensor."""
    return _compiled(tf.keras.Model(*_network()), tf.keras.optimizers.SGD(_BranchOnStep(), momentum=0.9))


def shared_layer(context):
    """Has a layer that two branches share."""
    x = tf.keras.Input((4,), name="x")
    shared = tf.keras.layers.Dense(4, activation="tanh")
    once = shared(x)
    return _compiled(tf.keras.Model({"x": x}, tf.keras.layers.Dense(1)(shared(once) + once)))


class TiedRows(tf.keras.layers.Layer):
    """Looks up rows of a table, and multiplies their mean by the whole table."""

    def build(self, shape):
        self.table = self.add_weight(name="table", shape=(20, 4), initializer="uniform")

    def call(self, ids):
        table = getattr(self.table, "value", self.table) if _keras_3 else self.table
        mean = tf.reduce_mean(tf.nn.embedding_lookup(table, ids), 1)
        return tf.matmul(mean, tf.convert_to_tensor(self.table), transpose_b=True)


def tied_weights(context):
    """Uses one table to embed ids and to compute the output."""
    ids = tf.keras.Input((3,), name="ids", dtype="int64")
    return _compiled(tf.keras.Model({"ids": ids}, tf.keras.layers.Dense(1)(TiedRows()(ids))))


def nested_model(context):
    """Has a model as one of its layers."""
    inputs, output = _network(head=2)
    inner = tf.keras.Model(list(inputs.values()), output)
    x = tf.keras.Input((4,), name="x")
    return _compiled(tf.keras.Model({"x": x}, tf.keras.layers.Dense(1)(inner(x))))


def recurrent(context):
    """Has a GRU over embedded ids."""
    ids = tf.keras.Input((3,), name="ids", dtype="int64")
    states = tf.keras.layers.GRU(4)(tf.keras.layers.Embedding(20, 4)(ids))
    return _compiled(tf.keras.Model({"ids": ids}, tf.keras.layers.Dense(1)(states)))


class _Counter(tf.keras.layers.Layer):
    """Scales its input by a number that grows with each training step."""

    def __init__(self):
        super().__init__()
        self.steps = tf.Variable(0.0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def call(self, values, training=False):
        if training:
            self.steps.assign_add(1.0)
        return values * (1.0 + 0.05 * self.steps.read_value())


def own_variable(context):
    """Has a `tf.Variable` that `call` changes."""
    inputs, output = _network()
    return _compiled(tf.keras.Model(inputs, _Counter()(output)))


class _Lists(tf.keras.Model):
    """Has layers that it finds only through a list and a dictionary."""

    def __init__(self):
        super().__init__(name="lists")
        self.hidden = [tf.keras.layers.Dense(6, activation="tanh"), tf.keras.layers.BatchNormalization(synchronized=True)]
        self.heads = {"y": tf.keras.layers.Dense(1)}

    def call(self, features, training=False):
        dense, norm = self.hidden
        return self.heads["y"](norm(dense(features["x"]), training=training))


def layers_in_lists(context):
    """Keeps its layers in a list and a dictionary (a subclass)."""
    return _compiled(_Lists())


def one_hot_label(context):
    """Uses a one-hot label and `categorical_crossentropy`."""
    inputs, output = _network(head=3)
    loss = tf.keras.losses.CategoricalCrossentropy(from_logits=True)
    return _compiled(tf.keras.Model(inputs, output), loss=loss, metrics=["accuracy"])


def example_weights(context):
    """Uses the weights of examples, and a weighted metric."""
    return _compiled(tf.keras.Model(*_network()), weighted_metrics=["mae"])


def augmented(context):
    """Trains on examples that `augment` varies."""
    return _compiled(tf.keras.Model(*_network()))


def decoded_images(context):
    """Reads PNG images with `decode_features`, flipped at random by `augment`."""
    image = tf.keras.Input((4, 4, 1), name="image")
    return _compiled(tf.keras.Model({"image": image}, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(image))))


def decoded_text(context):
    """Embeds the words of texts, which `decode_features` splits (a ragged feature)."""
    return _compiled(_Table("tokens"))


# Functions of single examples, by kind.


def _add_noise(features, label, seed):
    return {**features, "x": features["x"] + tf.random.stateless_normal([4], seed, stddev=0.3)}, label


def _decode_image(features):
    image = tf.io.decode_image(features["png"], channels=1, expand_animations=False)
    return {**features, "image": tf.ensure_shape(tf.cast(image, tf.float32) / 255.0, [4, 4, 1])}


def _flip(features, label, seed):
    return {**features, "image": tf.image.stateless_random_flip_left_right(features["image"], seed)}, label


def _split_text(features):
    return {**features, "tokens": tf.strings.to_hash_bucket_fast(tf.strings.split(features["text"]), 20)}


FUNCTIONS = {
    "augmented": {"augment": _add_noise},
    "decoded_images": {"decode_features": _decode_image, "augment": _flip},
    "decoded_text": {"decode_features": _split_text},
}

KINDS = [
    name
    for name, value in list(globals().items())
    if isinstance(value, types.FunctionType) and not name.startswith("_") and getattr(value, "__module__", "") == __name__
]
