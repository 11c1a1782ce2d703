import numpy as np
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
