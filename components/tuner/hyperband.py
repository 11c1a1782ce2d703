"""Continues the best trials of Hyperband's rounds, short rounds included.

Importing this module imports KerasTuner, and Keras with it.
"""

import itertools
from typing import Any

import keras_tuner
from keras_tuner.engine import trial as trial_lib

TrialStatus = trial_lib.TrialStatus


class HyperbandOracle(keras_tuner.oracles.HyperbandOracle):
    """KerasTuner's Hyperband, for rounds in which fewer trials succeed than planned.

    A round is short if trials fail, or if the space has no more values. KerasTuner then
    waits for trials that never come, and continues none or too few. Here the best ones
    continue: as many as planned, or all if no more have succeeded.
    """

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self._space_is_exhausted = False

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """Returns the values of the next trial, as KerasTuner expects them.

        Args:
          trial_id: Id of the next trial.
        """
        for bracket in self._brackets:
            if len(bracket["rounds"][0]) < self._get_size(bracket["bracket_num"], 0) and not self._space_is_exhausted:
                response: dict[str, Any] = self._random_trial(trial_id, bracket)
                if response["status"] == TrialStatus.RUNNING:
                    return response
                self._space_is_exhausted = True
            values = self._continue_best(trial_id, bracket)
            if values:
                return {"status": TrialStatus.RUNNING, "values": values}
        is_last = self._current_bracket == 0 and self._current_iteration + 1 == self.hyperband_iterations
        if not is_last and not self._space_is_exhausted:
            self._increment_bracket_num()
            self._start_new_bracket()
            return self.populate_space(trial_id)
        return {"status": TrialStatus.IDLE if self.ongoing_trials else TrialStatus.STOPPED}

    def count_new_trials(self) -> int:
        """Returns how many trials are planned that do not continue others."""
        sizes = [self._get_size(number, 0) for number in range(self._get_num_brackets())]
        return int(self.hyperband_iterations * sum(sizes))

    def _continue_best(self, trial_id: str, bracket: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the values of a trial that continues another; None if none can."""
        number, rounds = bracket["bracket_num"], bracket["rounds"]
        # Trials of a round that have succeeded or still may.
        hopeful = len(rounds[0]) if self._space_is_exhausted else self._get_size(number, 0)
        for round_num, (past, current) in enumerate(itertools.pairwise(rounds), start=1):
            trials = [self.trials[entry["id"]] for entry in past]
            hopeful -= sum(trial.status == TrialStatus.FAILED for trial in trials)
            size = min(self._get_size(number, round_num), hopeful)
            continued = {entry["past_id"] for entry in current}
            candidates = [
                trial for trial in trials if trial.status == TrialStatus.COMPLETED and trial.trial_id not in continued
            ]
            if len(candidates) > hopeful - size:  # the best of them is one of the best `size`, however others end
                best = (max if self.objective.direction == "max" else min)(candidates, key=lambda trial: trial.score)
                current.append({"past_id": best.trial_id, "id": trial_id})
                return {
                    **best.hyperparameters.values,
                    "tuner/trial_id": best.trial_id,
                    "tuner/epochs": self._get_epochs(number, round_num),
                    "tuner/initial_epoch": self._get_epochs(number, round_num - 1),
                    "tuner/bracket": number,
                    "tuner/round": round_num,
                }
            hopeful = size
        return None
