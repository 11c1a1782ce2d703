"""Defines what a target is, a platform that pipelines run on, and lists all targets.

To add a target, write a folder `targets/NAME/` with a `target.py`, a `settings.py`,
whose class has `TARGET`, a `compiler.py` with `compile_pipeline` and a `machines.py`
with `launcher_settings`, and add one line to `TARGETS` and one field to
`spec.pipeline.Targets`. The choices of `--target` and the target's own command-line
options follow from that.

This module, and each `target.py`, is imported for `--help`: import pydantic, TFX and
everything else that takes time inside of methods.
"""

import abc
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import click

from tfx_distribute.trainer_module.errors import ConfigurationError

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

    from tfx_distribute.components.launchers.launcher import LauncherSettings
    from tfx_distribute.components.spec_model import SpecModel
    from tfx_distribute.pipelines.spec.machines import MachineSpec
    from tfx_distribute.pipelines.spec.pipeline import Notify, PipelineSpec
    from tfx_distribute.pipelines.spec.user_module import Module
    from tfx_distribute.pipelines.targets.remote_runs import RemoteRuns
    from tfx_distribute.pipelines.targets.settings import RemoteSettings

# Name -> module and class, which is imported when it is asked for.
TARGETS = {
    "local": ("tfx_distribute.pipelines.targets.local.target", "LocalTarget"),
    "kubeflow": ("tfx_distribute.pipelines.targets.kubeflow.target", "KubeflowTarget"),
    "vertex": ("tfx_distribute.pipelines.targets.vertex.target", "VertexTarget"),
}
PLACEHOLDER_ID = "0123456789"  # stands for the fingerprint of a training

SettingsT = TypeVar("SettingsT", bound="SpecModel")
RemoteSettingsT = TypeVar("RemoteSettingsT", bound="RemoteSettings")

SCHEDULE_OPTIONS = (
    click.Option(["--cron"], help="Run repeatedly, e.g. '0 3 * * 1-5': minute, hour, day, month, day of the week."),
    click.Option(["--start-time"], help="First time of --cron, RFC 3339."),
    click.Option(["--end-time"], help="Last time of --cron, RFC 3339."),
    click.Option(["--max-concurrent-run-count"], type=click.IntRange(1), help="Runs of --cron at a time; default 1."),
)


@dataclass(frozen=True)
class Package:
    """A compiled pipeline.

    Attributes:
      pipeline: PipelineSpec for Kubeflow Pipelines, PipelineJob for Vertex AI.
      platform: For Kubeflow Pipelines, the second document, which says where steps run.
      text: The file as the platform's client reads it.
    """

    pipeline: dict[str, Any]
    platform: dict[str, Any]
    text: str
    num_steps: int
    warnings: tuple[str, ...]

    def to_text(self) -> str:
        """Returns the file; the same pipeline gives the same text."""
        return self.text


@dataclass(frozen=True)
class Submitted:
    """A submitted run, or a schedule of runs; `address` is its page in a browser."""

    id: str
    address: str


class Target(abc.ABC, Generic[SettingsT]):
    """A platform, together with the pipeline that is to run on it.

    Creating a target validates it: the settings of the platform, and whether the
    pipeline can run there. A pipeline is thus validated once, and only one that has
    been validated can be planned, compiled or submitted.

    Args:
      spec: The pipeline, with the values of its parameters.
      options: Command-line options, by parameter name. Those in `setting_options`
        replace settings of the pipeline file unless they are None.

    Attributes:
      name: Name of the target: its key in `TARGETS` and under `targets` in
        a pipeline file.
      runs_here: True if steps run on this machine, and so see its files.
      setting_options: Command-line options that are settings of the target, too.
      spec: The pipeline, with the settings that the options have replaced.

    Raises:
      ConfigurationError: The pipeline cannot run there; the message says what to write
        instead.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    runs_here: ClassVar[bool] = False
    setting_options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: "PipelineSpec", options: Mapping[str, Any] | None = None):
        from tfx_distribute.pipelines.spec import loader

        self.options = dict(options or {})
        overrides = {name: self.options.get(name) for name in self.setting_options}
        self.spec = loader.with_target(spec, self.name, overrides)
        self.settings: SettingsT = self.validate()

    @abc.abstractmethod
    def validate(self) -> SettingsT:
        """Checks the pipeline without TFX and TensorFlow; returns the settings."""

    def find_warnings(self) -> list[str]:
        """Returns what the user should know before a run on this platform."""
        return []

    def launches(self) -> dict[str, Any] | None:
        """Returns what the Trainer's step would create to train, or None for nothing.

        The name and the address of the job stand for those of a run.
        """
        return None

    @abc.abstractmethod
    def count_devices(self) -> int:
        """Returns the number of devices of the machine of each training process.

        A machine without accelerators counts as one device.
        """


class RemoteTarget(Target[RemoteSettingsT]):
    """A target that pipelines are compiled for and submitted to.

    Attributes:
      suffix: Suffix of compiled files, such as `.yaml`.
      times: Names of the options that only go with `cron`.
      place_options: Options that say where the platform is, and who asks: of `submit`,
        `runs` and `schedules`.
      compile_options: Those of them that `validate`, `plan` and `compile` have too.
      submit_options: The target's own options of the command `submit` alone.
    """

    suffix: ClassVar[str]
    times: ClassVar[tuple[str, ...]] = ("start_time", "end_time", "max_concurrent_run_count")
    place_options: ClassVar[Sequence[click.Option]] = ()
    compile_options: ClassVar[Sequence[click.Option]] = ()
    submit_options: ClassVar[Sequence[click.Option]] = ()

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Checks that options, this target's and those of all targets, go together.

        Raises a ConfigurationError if they do not. `options` is name -> value.
        """
        cron = options.get("cron")
        for name in cls.times if cron is None else ("wait",):
            if options.get(name):
                reason = "belongs to a schedule; write --cron too" if cron is None else "is for one run, without --cron"
                raise ConfigurationError(f"--{name.replace('_', '-')}: {reason}")
        fields = [field for field in (cron or "").split() if not field.startswith(("TZ=", "CRON_TZ="))]
        if cron is not None and len(fields) != 5:
            raise ConfigurationError(
                f"--cron: {cron!r} has {len(fields)} fields; write five, minute, hour, day, month and day of the week, e.g. "
                "'0 3 * * 1-5'"
            )

    @classmethod
    def compile_pipeline(
        cls,
        pipeline: "Pipeline",
        settings: RemoteSettingsT,
        resources: "Mapping[str, MachineSpec]",
        defaults: Mapping[str, Any] | None = None,
        notify: "Notify | None" = None,
    ) -> Package:
        """Compiles a TFX pipeline, from a pipeline file or written in Python.

        The function of that name in the target's `compiler.py` does it. `notify` is
        that of a pipeline file; `python_api.compile_pipeline` describes the others.
        """
        compiler = importlib.import_module(f"tfx_distribute.pipelines.targets.{cls.name}.compiler")
        package: Package = compiler.compile_pipeline(pipeline, settings, resources, defaults, notify)
        return package

    def validate(self) -> RemoteSettingsT:
        """Checks the settings, the machines, and that steps can reach the data."""
        from tfx_distribute.pipelines.machines import accelerators
        from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED

        spec = self.spec
        settings: RemoteSettingsT | None = getattr(spec.targets, self.name)
        if settings is None:
            raise ConfigurationError(f"targets.{self.name}: is missing; write at least its image and pipeline_root")
        name, source = spec.data.source
        base_model = spec.trainer.base_model.path
        addresses = {
            f"data.{name}": source if name != "example_gen" else None,
            "data.schema_file": spec.data.schema_file,
            "trainer.base_model": base_model if base_model != LATEST_BLESSED else None,
            "push.directory": spec.push.directory if spec.push else None,
        }
        for setting, path in addresses.items():
            if path:
                self.check_address(setting, path, settings)
        self.check(settings)
        accelerators.check_trainer(self.trainer_machine, spec.trainer.parameters.distribution)
        return settings

    @abc.abstractmethod
    def check(self, settings: RemoteSettingsT) -> None:
        """Checks what only this platform asks for: its settings, and its machines."""

    @abc.abstractmethod
    def check_address(self, setting: str, path: str, settings: RemoteSettingsT) -> None:
        """Checks that a step can reach a path, the value of `setting`."""

    def find_warnings(self) -> list[str]:
        """Returns which devices of the Trainer's machine are idle."""
        from tfx_distribute.pipelines.machines import accelerators

        return accelerators.warn_of_idle_devices(self.trainer_machine, self.spec.trainer.parameters.distribution)

    def count_devices(self) -> int:
        """Returns the number of accelerators of the Trainer's machine; 1 for none."""
        from tfx_distribute.pipelines.machines import accelerators

        return accelerators.count_devices(self.trainer_machine) or 1

    @property
    def trainer_machine(self) -> "MachineSpec":
        """The machine that trains."""
        from tfx_distribute.pipelines.spec.machines import TRAINER, machine_of

        return machine_of(self.spec.resources, TRAINER)

    def compile(self, module: "Module", enable_cache: bool = True) -> Package:
        """Compiles the pipeline. Values of its parameters become their defaults."""
        from tfx_distribute.pipelines.spec import user_module
        from tfx_distribute.pipelines.targets import tfx_pipeline

        spec, settings = self.spec, self.settings
        push_directory = spec.push.directory if spec.push else None
        paths = tfx_pipeline.PipelinePaths(
            pipeline_root=settings.pipeline_root,
            metadata=None,
            push_directory=push_directory or f"{settings.pipeline_root.rstrip('/')}/{spec.name}/serving",
            image=settings.image,
        )
        with user_module.importable(module):
            pipeline = tfx_pipeline.build(spec, module, paths, enable_cache)
            defaults = tfx_pipeline.get_parameter_values(spec)
            return self.compile_pipeline(pipeline, settings, spec.resources, defaults, spec.notify)

    def submit(self, package: Package, arguments: Mapping[str, Any], wait: bool, report: Callable[[str], None]) -> bool:
        """Uploads a compiled pipeline and runs it, once or as the option `cron` says.

        Parameters that are not in `arguments` take their defaults. `report` gets each
        line for the user. With `wait`, follows the run to its end, and returns False if
        it failed; else returns True. Raises a ConfigurationError if the platform
        refuses it.
        """
        cron = self.options.get("cron")
        times = {name: value for name in self.times if (value := self.options.get(name)) is not None}
        runs, submitted = self.start(package, arguments, {"cron": cron, **times} if cron else None)
        report(f"{'schedule' if cron else 'run     '} {submitted.address}")
        return runs.follow(submitted.id, report) if wait and not cron else True

    @abc.abstractmethod
    def start(
        self, package: Package, arguments: Mapping[str, Any], schedule: Mapping[str, Any] | None
    ) -> "tuple[RemoteRuns, Submitted]":
        """Starts a run, or makes a schedule of `cron` and what `times` names."""

    @classmethod
    @abc.abstractmethod
    def open_runs(cls, options: Mapping[str, Any]) -> "RemoteRuns":
        """Connects to the platform, to list, show and cancel runs.

        `options` are the command-line options of `place_options`, by parameter name.
        Raises a ConfigurationError if the platform does not answer, or refuses.
        """

    def launcher_settings(self) -> "LauncherSettings":
        """Returns where the Trainer trains.

        The function of that name in the target's `machines.py` makes it.
        """
        machines = importlib.import_module(f"tfx_distribute.pipelines.targets.{self.name}.machines")
        settings: LauncherSettings = machines.launcher_settings(self.spec.name, self.spec.resources, self.settings)
        return settings

    def launches(self) -> dict[str, Any] | None:
        """Returns the request for the machines that train, or None for the step."""
        from tfx_distribute.components.launchers import registry
        from tfx_distribute.components.launchers.launcher import Training
        from tfx_distribute.trainer_module.job.training_job import keras_environment

        parameters, settings = self.spec.trainer.parameters, self.launcher_settings()
        if not settings.runs_remotely(parameters.distribution):
            return None
        name = f"{self.spec.name}-{PLACEHOLDER_ID}"
        training = Training(
            name,
            f"{settings.training_dir or self.settings.pipeline_root}/{name}/job.json",
            parameters.distribution,
            keras_environment(parameters.keras_version),
            parameters.fault_tolerance.max_restarts,
        )
        return registry.make(settings).request(training)


def get(name: str) -> type[Target[Any]]:
    """Returns the class of a target, or raises a ConfigurationError."""
    if name not in TARGETS:
        raise ConfigurationError(f"target: there is no target {name!r}; choose one of {', '.join(TARGETS)}")
    module, class_name = TARGETS[name]
    target: type[Target[Any]] = getattr(importlib.import_module(module), class_name)
    return target


def get_remote(name: str) -> type[RemoteTarget[Any]]:
    """Returns the class of a target that pipelines are compiled for."""
    target = get(name)
    if not issubclass(target, RemoteTarget):
        choices = ", ".join(remote_targets())
        raise ConfigurationError(f"target: pipelines are not compiled for {name!r}; choose one of {choices}")
    return target


def remote_targets() -> dict[str, type[RemoteTarget[Any]]]:
    """Returns the classes of the targets that pipelines are compiled for, by name."""
    return {name: target for name in TARGETS if issubclass(target := get(name), RemoteTarget)}
