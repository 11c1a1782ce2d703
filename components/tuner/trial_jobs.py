"""Makes the training job of a trial from the job that all trials share."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfx_distribute.components.tuner import search
from tfx_distribute.trainer_module.job.training_job import Outputs, TrainingJob

# Folders in that of a trial.
LOGS, STATE = "logs", "state"


@dataclass(frozen=True)
class TrialPlan:
    """A trial that an oracle has asked for.

    Attributes:
      trial: Its number in the search.
      epochs: Its epochs in total; 0 for those of the shared job.
      continues: Number of the trial whose state it continues from; empty for none.
      first: Number of the trial at which that chain began; its own if there is none.
    """

    trial: str
    oracle_id: str
    hparams: Mapping[str, Any]
    epochs: int
    continues: str
    first: str


def folder_of(search_folder: str, trial: str) -> str:
    """Returns the folder of the trial with this number."""
    return os.path.join(search_folder, f"trial-{trial}")


def make_job(shared: TrainingJob, plan: TrialPlan, search_folder: str) -> TrainingJob:
    """Makes the job of a trial: a training with its values that exports no model.

    A trial that continues another works on that one's saved state. The file for the
    job's result is left out.
    """
    options = shared.training_options
    return replace(
        shared,
        hparams={**shared.hparams, **plan.hparams},
        training_options=search.with_epochs(options, plan.epochs) if plan.epochs else options,
        outputs=Outputs(
            serving_model_dir="",
            model_run_dir=os.path.join(folder_of(search_folder, plan.trial), LOGS),
            result_file="",
            checkpoint_dir=os.path.join(folder_of(search_folder, plan.first), STATE),
            saves_end=bool(plan.epochs),
        ),
    )
