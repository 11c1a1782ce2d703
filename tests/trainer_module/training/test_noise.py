import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.training import noise


def apply_dropout(layer, **seeds):
    with noise.seeded_by_step(**seeds):
        return layer(tf.ones([4, 64]), training=True).numpy()


def test_noise_follows_from_seed_step_and_batch():
    layer = tf.keras.layers.Dropout(0.5)
    first = apply_dropout(layer, seed=1, step=5)
    assert 0 < np.count_nonzero(first) < first.size
    np.testing.assert_array_equal(first, apply_dropout(layer, seed=1, step=5))
    for other in ({"seed": 2, "step": 5}, {"seed": 1, "step": 6}, {"seed": 1, "step": 5, "batch": 1}):
        assert not np.array_equal(first, apply_dropout(layer, **other)), other


def test_layers_of_a_step_draw_different_numbers():
    layer = tf.keras.layers.Dropout(0.5)
    with noise.seeded_by_step(seed=1, step=5):
        one, other = (layer(tf.ones([4, 64]), training=True).numpy() for _ in range(2))
    assert not np.array_equal(one, other)


def test_draws_in_a_loop_of_the_model_differ_from_round_to_round():
    """For instance, augmentation draws for each image of a batch."""
    layer = tf.keras.layers.Dropout(0.5)

    @tf.function
    def noisy():
        with noise.seeded_by_step(seed=1, step=5):
            return tf.map_fn(lambda row: layer(row, training=True), tf.ones([3, 64]))

    rows = noisy().numpy()
    assert not np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[1], rows[2])


DRAWS = {
    "normal": lambda: tf.random.normal([8, 2], 3.0, 2.0, tf.float64),
    "truncated_normal": lambda: tf.random.truncated_normal([8, 2]),
    "uniform": lambda: tf.random.uniform([8, 2], -1.0, 1.0, tf.float16),
    "integers": lambda: tf.random.uniform([8, 2], 5, 1 << 40, tf.int64),
    "shuffle": lambda: tf.random.shuffle(tf.range(64)),
    "gamma": lambda: tf.random.gamma([8], tf.constant([0.5, 9.0])),
    "poisson": lambda: tf.random.poisson([8], [3.0, 50.0], tf.int32),
    "categorical": lambda: tf.random.categorical(tf.zeros([8, 50]), 2, tf.int32),
    "op seed": lambda: tf.random.normal([8, 2], seed=7),
    "backend": lambda: tf.keras.backend.random_normal([8, 2]),
    "backend with a seed": lambda: tf.keras.backend.random_uniform([8, 2], seed=7),
    "tf.nn": lambda: tf.nn.dropout(tf.ones([8, 20]), 0.5),
    "tf.image": lambda: tf.image.random_brightness(tf.zeros([2, 2, 3]), 0.5),
}


def draw_in_step(draw, **seeds):
    """Calls a function in a step that is traced for it."""

    @tf.function
    def step():
        with noise.seeded_by_step(**seeds):
            return draw()

    return step()


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_draws_of_tensorflow_follow_from_the_step(draw):
    """As in the sampling layer of a variational autoencoder."""
    ordinary, first = draw(), draw_in_step(draw, seed=1, step=5)
    assert (first.shape, first.dtype) == (ordinary.shape, ordinary.dtype)
    np.testing.assert_array_equal(first, draw_in_step(draw, seed=1, step=5))
    assert not np.array_equal(first, draw_in_step(draw, seed=1, step=6))


def test_draws_of_tensorflow_have_their_distribution():
    normal, integers, shuffled, gamma, poisson = draw_in_step(
        lambda: (
            tf.random.normal([10_000], 3.0, 2.0),
            tf.random.uniform([10_000], 5, 8, tf.int32),
            tf.random.shuffle(tf.range(100)),
            tf.random.gamma([10_000], [4.0], [2.0]),
            tf.random.poisson([10_000], [6.0]),
        ),
        seed=1,
        step=5,
    )
    assert (np.mean(normal), np.std(normal)) == pytest.approx((3.0, 2.0), abs=0.1)
    assert set(integers.numpy()) == {5, 6, 7}
    assert sorted(shuffled.numpy()) == list(range(100))
    assert (np.mean(gamma), np.mean(poisson)) == pytest.approx((2.0, 6.0), abs=0.1)


def test_operations_with_the_same_seed_draw_the_same():
    one, other, different, none, another = draw_in_step(
        lambda: [tf.random.shuffle(tf.range(64), seed=seed) for seed in (900, 900, 901, None, None)], seed=1, step=5
    )
    np.testing.assert_array_equal(one, other)
    assert len({tuple(each.numpy()) for each in (one, different, none, another)}) == 4


def test_draws_outside_of_a_step_stay_as_they_are():
    """Such as initial weights, which have to be the same on all workers."""

    @tf.function
    def outer():
        with noise.seeded_by_step(seed=1, step=5):
            inside = tf.random.normal([4])
            with tf.init_scope():
                initial = tf.random.normal([4], seed=3)
        return inside, initial, tf.random.normal([4], seed=3)

    tf.random.set_seed(1)
    ordinary = tf.random.normal([4], seed=3).numpy()
    tf.random.set_seed(1)
    _, initial, after = outer()
    np.testing.assert_array_equal(initial, ordinary)
    np.testing.assert_array_equal(after, ordinary)
