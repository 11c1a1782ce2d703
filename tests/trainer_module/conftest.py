"""Keeps AutoGraph from converting Keras 2, as in every training process."""

from tfx_distribute.trainer_module.keras import autograph

# Before the tests' modules define subclasses of Keras. Converting Keras takes most of
# the time of many of them.
autograph.exempt_libraries()
