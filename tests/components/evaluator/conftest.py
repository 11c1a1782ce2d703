"""Keeps AutoGraph from converting Keras 2, as wherever a model is evaluated."""

from tfx_distribute.trainer_module.keras import autograph

# Before the tests' modules define subclasses of Keras. Converting Keras takes most of
# the time of many of them.
autograph.exempt_libraries()
