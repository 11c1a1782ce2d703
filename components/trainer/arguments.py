"""Types of the Trainer's arguments that are pipeline parameters.

Editors and type checkers read them in the generated `arguments.pyi`.
"""

from typing import TypedDict

from tfx_distribute.components.trainer import signature
from tfx_distribute.trainer_module.job.parameters import GROUPS

TrainerArguments = TypedDict("TrainerArguments", signature.annotations(GROUPS), total=False)
