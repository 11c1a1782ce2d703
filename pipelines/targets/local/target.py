"""Defines the target `local`: pipelines run on this machine."""

from typing import TYPE_CHECKING

from tfx_distribute.pipelines.targets.target import Target

if TYPE_CHECKING:
    from tfx_distribute.pipelines.spec.pipeline import LocalSettings
    from tfx_distribute.pipelines.targets.local.paths import RunPaths


class LocalTarget(Target["LocalSettings"]):
    """This machine; the option `root` is the folder of all runs of the pipeline."""

    name = "local"
    title = "This machine"
    runs_here = True
    paths: "RunPaths"

    def count_devices(self) -> int:
        """Returns the number of this machine's GPUs; 1 for none."""
        from tfx_distribute.components.launchers.local import gpus

        return max(1, len(gpus.list_visible()))

    def validate(self) -> "LocalSettings":
        """Checks the data, how gradients are summed, and that Beam can run here."""
        from tfx_distribute.pipelines.spec import beam, data_checks
        from tfx_distribute.pipelines.targets.local import paths
        from tfx_distribute.trainer_module.job import strategy_table

        beam.check_local(self.spec.beam)
        data_checks.check_data(self.spec)
        data_checks.check_base_model(self.spec)
        strategy_table.check_all_reduce(self.spec.trainer.parameters.distribution, "this machine")
        self.paths = paths.run_paths(self.spec, self.options.get("root"))
        return self.spec.targets.local
