"""Makes `Parameters`, the model of `trainer.parameters` in a pipeline file.

The fields come from the declarations in `trainer_module.job.parameters`. Editors and
type checkers read them in the generated `parameters.pyi`.
"""

from tfx_distribute.pipelines.spec import parameter_model
from tfx_distribute.trainer_module.job.parameters import GROUPS

Parameters = parameter_model.make_model("Parameters", GROUPS, module=__name__)
