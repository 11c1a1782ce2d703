"""Reads data files as tf.Examples that hold exactly the values of the files."""
