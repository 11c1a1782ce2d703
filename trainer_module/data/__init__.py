"""Reads sharded TFRecords as `tf.data`."""
