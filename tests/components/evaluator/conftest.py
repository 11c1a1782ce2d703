"""Keeps AutoGraph from converting Keras 2, as in processes that evaluate a model."""

from tfx_distribute.trainer_module.loop import autograph

# Before the tests' modules define subclasses of Keras. Converting Keras takes most of
# the time of many of them.
autograph.exempt_tf_keras()
