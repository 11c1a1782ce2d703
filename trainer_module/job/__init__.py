"""What a training process is asked to do: the job document, the cluster, and plans worked out without TensorFlow."""
