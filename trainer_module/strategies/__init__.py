"""Makes the `tf.distribute` strategy of a training job."""
