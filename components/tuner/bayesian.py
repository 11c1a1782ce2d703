"""Lets the Gaussian process suggest each combination of values once.

Importing this module imports KerasTuner, and Keras with it.
"""

from typing import Any

import keras_tuner
from keras_tuner.engine import trial as trial_lib


class BayesianOracle(keras_tuner.oracles.BayesianOptimizationOracle):
    """KerasTuner's Bayesian optimization, which does not repeat a trial.

    With few values, the Gaussian process suggests the best ones again and again, and
    failed ones too, as it does not learn from them. Here values at random replace them.
    """

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Returns the values of the next trial, as KerasTuner expects them."""
        response: dict[str, Any] = super().populate_space(trial_id)
        if response["status"] != trial_lib.TrialStatus.RUNNING:
            return response
        # Where the process suggests the upper end of whole numbers, KerasTuner adds 1.
        largest = {hp.name: hp.max_value for hp in self.hyperparameters.space if hasattr(hp, "max_value")}
        values = {
            name: min(value, largest[name]) if name in largest else value for name, value in response["values"].items()
        }
        return self._random_populate_space() if self._duplicate(values) else {**response, "values": values}
