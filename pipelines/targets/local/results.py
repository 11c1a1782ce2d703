"""Reads the results of runs: facts, metrics, commands that show more, differences."""

import itertools
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfx_distribute.components.pusher import versions
from tfx_distribute.components.report.data import Cell, Evaluation, describe_unusable_baseline
from tfx_distribute.components.tuner import trials
from tfx_distribute.pipelines.spec.pipeline import Metric, PipelineSpec
from tfx_distribute.trainer_module.job.time_use import TimeUse, format_shares

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.local.runs import Run

# Of metrics of the training's last epoch, and of the exported one if it is another, in
# the model's properties.
METRIC_PREFIXES = ("training_", "exported_")

Differences = dict[str, tuple[Any, ...]]  # by name, a value for each run


@dataclass(frozen=True)
class MetricResult:
    """A metric of the trained model, over all examples of the evaluated splits.

    Attributes:
      name: The metric's class, as in the pipeline file.
      value: Its value.
      metric: Its thresholds.
      failed_on: Slices on which a threshold is not met, such as `hour=3`; the empty
        string stands for all examples. A threshold applies to every slice, as in TFMA.
      unmet_change: The difference from the latest blessed model's value, over all
        examples, if a threshold on it is not met.
    """

    name: str
    value: float
    metric: Metric
    failed_on: tuple[str, ...]
    unmet_change: float | None = None


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
      training: How the model was trained: strategy, num_workers, num_replicas,
        global_batch_size, train_steps, precision, base_model and how many weights it
        gave, train_seconds and `training_<metric>` values; with `export_best`,
        exported_epoch, exported_step and `exported_<metric>`; `time_<activity>`, the
        share of the time from 0 to 1 (see `time_use.ACTIVITIES`), and if a process
        holds the others back, slowest_process, slowest_process_holds_back (the share
        of the time for which they wait for it) and slowest_process_reason.
      model: Folder of the trained SavedModel.
      metrics: Metrics that Evaluator computed.
      blessed: True if all thresholds are met; None if there are no thresholds.
      unusable_baseline: Why changes against the latest blessed model are ignored, such
        as `its Loss on hour=3 is not finite` or `/models/7 cannot read these examples:
        ...`; empty if they count, or no model was blessed before.
      pushed: Folder of the pushed model; None if no model was pushed.
      search: The trials of the search for hyperparameters; None without `tune`.
      facts: The lines that the command shows.
    """

    training: Mapping[str, Any]
    model: str
    metrics: tuple[MetricResult, ...] = field(default=())
    blessed: bool | None = None
    unusable_baseline: str = ""
    pushed: str | None = None
    search: trials.SearchResult | None = None
    facts: tuple["Fact", ...] = ()


@dataclass(frozen=True)
class Fact:
    """A line about a run. A metric may have thresholds, and a verdict on them."""

    name: str
    text: str
    verdict: str = ""
    color: str = ""


def read(run: "Run", spec: PipelineSpec) -> RunResult:
    """Reads the result of a run of a pipeline that is complete."""
    from tfx_distribute.components.report import artifacts  # loads TFX

    evaluation, missing = read_evaluation(run)
    trials_found = run.find("TunerResults")
    return RunResult(
        training=run.training,
        model=run.model.uri if run.model else "",
        metrics=match_metrics(evaluation, spec.evaluate.metrics) if spec.evaluate and evaluation else (),
        blessed=run.blessed,
        unusable_baseline=run.unusable_baseline,
        pushed=run.pushed or None,
        search=artifacts.read_search(trials_found.uri, trials_found.properties) if trials_found else None,
        facts=(*list_facts(run, evaluation), *(Fact("missing", text, color="yellow") for text in missing)),
    )


def read_evaluation(run: "Run") -> tuple[Evaluation | None, tuple[str, ...]]:
    """Returns the evaluation of a run, if there is one, and what could not be read."""
    evaluation = run.find("ModelEvaluation")
    if evaluation is None:
        return None, ()
    from tfx_distribute.components.report import artifacts

    parts = artifacts.read(evaluation=evaluation.uri, blessed=run.blessed)
    return parts.get("evaluation"), tuple(f"{run.id}: {text}" for text in parts["missing"])


def match_metrics(evaluation: Evaluation, metrics: Mapping[str, Metric]) -> tuple[MetricResult, ...]:
    """Returns the metrics of a pipeline file, as an evaluation has them."""
    results = []
    for name, metric in metrics.items():
        shown = metric.config.get("name", name)
        cell = evaluation.overall.get(shown, Cell(math.nan))
        results.append(MetricResult(name, cell.value, metric, evaluation.list_failed(shown), cell.unmet_change))
    return tuple(results)


def list_metrics(run: "Run", evaluation: Evaluation | None) -> dict[str, float]:
    """Returns a run's metrics over all examples, those of the evaluation first."""
    metrics = evaluation.values if evaluation else {}
    return {**metrics, **{name: value for name, value in run.training.items() if name.startswith(METRIC_PREFIXES)}}


def list_facts(run: "Run", evaluation: Evaluation | None) -> Iterable[Fact]:
    """Yields how a model was trained, its metrics, and where it is."""
    training = run.training
    if "strategy" in training:
        batch = training.get("global_batch_size")
        size = f", global batch {batch}" if batch else ""
        steps = f", {training['train_steps']} steps" if training.get("train_steps") else ""
        replicas = "1 replica" if training["num_replicas"] == 1 else f"{training['num_replicas']} replicas"
        yield Fact("trained", f"{training['strategy']}, {replicas}{size}{steps}")
    shares = format_shares({name.removeprefix("time_"): training[name] for name in training if name.startswith("time_")})
    if shares:
        yield Fact("time", shares)
    if "slowest_process" in training:
        process, share, reason = (training[f"slowest_process{part}"] for part in ("", "_holds_back", "_reason"))
        yield Fact("slowest", TimeUse((), process, share, reason).describe(), color="yellow")
    if "exported_epoch" in training:
        values = {name.removeprefix("exported_"): training[name] for name in training if name.startswith("exported_val_")}
        metrics = [f", {name} {value:.6g}" for name, value in values.items()]
        yield Fact("exported", f"epoch {training['exported_epoch']}{''.join(metrics)}")
    if training.get("base_model"):
        taken = training["base_model_weights_taken"]
        started_from = f"{training['base_model']}, {taken} of {taken + training['base_model_weights_skipped']} weights"
        if "base_model_entries_taken" in training:
            known = training["base_model_entries_taken"]
            started_from += f", {known} of {known + training['base_model_entries_new']} vocabulary entries"
        yield Fact("started from", started_from)
    if evaluation:
        verdicts = evaluation.describe_thresholds()
        for name, value in evaluation.values.items():
            color = "red" if evaluation.list_failed(name) else "green"
            yield Fact(name, f"{value:.6g}", verdicts.get(name, ""), color if name in verdicts else "")
    if run.unusable_baseline:
        yield Fact("baseline", describe_unusable_baseline(run.unusable_baseline))
    if run.pushed:
        yield Fact("model", run.pushed)
    elif run.model:
        reason = "thresholds are not met" if run.blessed is False else ""
        if run.blessed is not False and run.model.properties.get(versions.WITHDRAWN):
            reason = "a rollback has withdrawn it"
        place = run.model.uri
        yield Fact("model", f"not pushed: {reason}; it is in {place}" if reason else place, color="red" if reason else "")


def list_commands(run: "Run") -> dict[str, str]:
    """Returns commands and files of a run: a purpose -> a command or path."""
    words = [run.id, "--root", str(run.root)]
    commands = {"report": shlex.join(["tfx-distribute", "report", *words])}
    if find_tensorboard_folders([run]):
        commands["curves"] = shlex.join(["tfx-distribute", "runs", "tensorboard", *words])
    if run.logs:
        commands["log"] = str(run.logs / "run.log")
    return commands


def find_tensorboard_folders(runs: "Sequence[Run]") -> dict[str, str]:
    """Returns the folders with TensorBoard's logs: a name for each -> its path."""
    folders = {}
    for run in runs:
        prefix = f"{run.id}/" if len(runs) > 1 else ""
        for type_name, suffix in (("ModelRun", ""), ("TunerResults", "/logs")):
            artifact = run.find(type_name)
            if artifact and not artifact.is_missing:
                folders[f"{prefix}{artifact.node}"] = f"{artifact.uri}{suffix}"
    return folders


def make_tensorboard_arguments(folders: dict[str, str]) -> list[str]:
    """Returns the options of TensorBoard that show some folders under their names."""
    if len(folders) == 1:
        return ["--logdir", *folders.values()]
    return ["--logdir_spec", ",".join(f"{name}:{path}" for name, path in folders.items())]


def compare(runs: "Sequence[Run]", metrics: Sequence[Mapping[str, float]]) -> dict[str, Differences]:
    """Returns the parameters, hyperparameters too, and the metrics that differ."""
    parameters = [
        {
            **run.parameters,
            **{f"hparams.{name}": value for name, value in run.hparams.items()},
            "module": run.module or None,
            "spans": run.spans or None,
        }
        for run in runs
    ]
    return {"parameter": find_differences(parameters), "metric": find_differences(metrics)}


def find_differences(values: Sequence[Mapping[str, Any]]) -> Differences:
    """Returns the names whose values differ; None where a mapping has none."""
    rows = {name: tuple(each.get(name) for each in values) for name in dict.fromkeys(itertools.chain(*values))}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row)}
