"""What a person touches: the declarative pipeline, the runners, the command line.

Importing this package imports neither TFX nor TensorFlow.
"""
