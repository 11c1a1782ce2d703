"""Defines the commands for runs that have started: report, and the group `runs`."""

import dataclasses
import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfx_distribute.components.report.data import format_duration
from tfx_distribute.pipelines.cli import tables
from tfx_distribute.pipelines.cli.options import OUTPUT, calm, on_platforms, refuse, refusing_errors, warn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfx_distribute.pipelines.targets.local.runs import Run
    from tfx_distribute.pipelines.targets.remote_runs import RemoteRun

ROOT = click.option(
    "--root", type=click.Path(file_okay=False), help="Folder of a pipeline's runs; default all folders in runs/."
)
RUN = click.argument("run", required=False)
_ON_PLATFORM = on_platforms("Platform that has the runs.", "place")


@click.command()
@RUN
@ROOT
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="File to write; default report.html in the run's logs."
)
def report(run: str | None, root: str | None, output: str | None) -> None:
    """Writes the report of a run on this machine, one HTML file.

    RUN is an id as `runs list` shows it, or the beginning of one, or the name of a
    pipeline; by default the latest run. The file needs no network and no script. What
    cannot be read, such as a file that was deleted, is named.
    """
    found = find_local(root, run)
    with calm():
        from tfx_distribute.pipelines.targets.local import report as report_lib

        made = report_lib.make(found)
    default = found.logs / report_lib.FILE if found.logs else found.root / f"report-{found.id}.html"
    path = Path(output) if output else default
    report_lib.write(made, path)
    for text in made.missing:
        click.echo(f"missing: {text}", err=True)
    click.echo(str(path))


@click.group()
def runs() -> None:
    """Lists, shows, compares and cancels runs."""


@_ON_PLATFORM
@runs.command("list")
@ROOT
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of runs.")
@OUTPUT
def list_(root: str | None, target_class: Any, limit: int, output: str, **options: Any) -> None:
    """Lists runs, the latest first."""
    if target_class.runs_here:
        local = list_local(root, limit)
        documents = [_local_document(run) for run in local]
        rows = [[run.id, run.pipeline, _describe_state(run), *_format_times(run).values(), run.spans] for run in local]
    else:
        with calm():
            remote = target_class.open_runs(options).list_runs(limit)
        documents = [dataclasses.asdict(run) for run in remote]
        rows = [[run.id, run.name, run.state, *_format_times(run).values(), ""] for run in remote]
    head = ["run", "name", "state", "started", "duration", "spans"]
    width = len(head) - (not any(row[-1] for row in rows))
    tables.print_list(output, documents, [row[:width] for row in (head, *rows)], "there are no runs")


@_ON_PLATFORM
@runs.command()
@RUN
@ROOT
@OUTPUT
def show(run: str | None, root: str | None, target_class: Any, output: str, **options: Any) -> None:
    """Shows a run: its steps, parameters and metrics, and if it was blessed.

    On this machine, RUN is as for `report`; elsewhere it is an id that `runs list`
    shows.
    """
    if not target_class.runs_here:
        if run is None:
            refuse("RUN: is missing; write an id that `runs list` shows")
        with calm():
            remote = target_class.open_runs(options).get(run)
        click.echo(tables.to_json(dataclasses.asdict(remote)) if output == "json" else _format_remote(remote))
        return
    found = find_local(root, run)
    with calm():
        from tfx_distribute.pipelines.cli import console
        from tfx_distribute.pipelines.targets.local import report as report_lib
        from tfx_distribute.pipelines.targets.local import results

        evaluation, missing = results.read_evaluation(found)
        anomalies = report_lib.describe_anomalies(found)
    metrics = results.list_metrics(found, evaluation)
    files = results.list_commands(found)
    if output == "json":
        more = {
            "data": found.data,
            "anomalies": anomalies,
            "metrics": metrics,
            "thresholds": evaluation.thresholds if evaluation else {},
            "verdicts": evaluation.describe_verdicts() if evaluation else {},
            "commands": files,
            "missing": missing,
        }
        click.echo(tables.to_json({**_local_document(found), **more}))
        return
    facts = [*results.list_facts(found, evaluation)]
    of_training = {name: value for name, value in metrics.items() if name not in (evaluation.values if evaluation else ())}
    parts = str(console.format_facts(facts)), _format_values("metric", of_training), tables.format_table([*files.items()])
    click.echo(_format_local(found, anomalies, *parts))
    for text in missing:
        click.echo(f"missing: {text}", err=True)


@runs.command()
@click.argument("run")
@click.argument("others", nargs=-1, required=True, metavar="RUN...")
@ROOT
def compare(run: str, others: tuple[str, ...], root: str | None) -> None:
    """Compares runs on this machine: parameters and metrics that differ."""
    found = [find_local(root, name) for name in (run, *others)]
    if len({(each.root, each.id) for each in found}) < len(found):
        refuse(f"RUN: {', '.join((run, *others))}: the same run twice; write another")
    with calm():
        from tfx_distribute.pipelines.targets.local import results

        evaluations, texts = zip(*map(results.read_evaluation, found), strict=True)
    result = results.compare(found, list(map(results.list_metrics, found, evaluations)))
    for title, differences in result.items():
        rows = [[name, *map(tables.format_value, row)] for name, row in differences.items()]
        names = [title, *(each.id for each in found)]
        click.echo(tables.format_table([names, *rows]) if rows else f"no {title} differs")
    for text in itertools.chain(*texts):
        click.echo(f"missing: {text}", err=True)


@runs.command()
@RUN
@ROOT
@click.option("--process", help="The process, such as chief-0 or trial-1/worker-0; run for the log of the pipeline.")
def logs(run: str | None, root: str | None, process: str | None) -> None:
    """Prints the log of a process of a run, or without --process, lists its logs."""
    found = find_local(root, run)
    if found.logs is None:
        refuse(f"RUN: the logs of {found.id} have been deleted")
    folder = found.logs
    files = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.log"))}
    if process is None:
        for name, path in files.items():
            click.echo(f"{name:24} {path}")
        return
    if process not in files:
        refuse(f"--process: {found.id} has no log of {process!r}; it has those of {', '.join(files)}")
    with files[process].open(encoding="utf-8", errors="replace") as file:
        for line in file:
            click.echo(line, nl=False)


@runs.command()
@click.argument("names", nargs=-1, metavar="[RUN]...")
@ROOT
@click.option("--port", type=click.IntRange(0, 65535), help="Port of TensorBoard; default TensorBoard's own.")
def tensorboard(names: tuple[str, ...], root: str | None, port: int | None) -> None:
    """Starts TensorBoard with the logs of runs: trainings, and trials of searches."""
    found = [find_local(root, name) for name in names or (None,)]
    from tfx_distribute.pipelines.targets.local import results

    folders = results.find_tensorboard_folders(found)
    if not folders:
        ids = ", ".join(run.id for run in found)
        refuse(f"RUN: {ids} has no TensorBoard logs; no Trainer finished, or they were deleted")
    arguments = results.make_tensorboard_arguments(folders) + ([f"--port={port}"] if port is not None else [])
    click.echo(" ".join(["tensorboard", *arguments]), err=True)
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "tensorboard.main", *arguments])  # noqa: S606 (no shell on purpose)


@_ON_PLATFORM
@runs.command()
@click.argument("run")
@ROOT
def cancel(run: str, root: str | None, target_class: Any, **options: Any) -> None:
    """Cancels a run; one on this machine saves its training before it ends.

    On this machine, it sends SIGTERM to the run's process, which Ctrl-C would end too.
    """
    if target_class.runs_here:
        _cancel_local(find_local(root, run))
        return
    with calm():
        target_class.open_runs(options).cancel(run)
    click.echo(f"{run}: asked to end")


@runs.command()
@click.option(
    "--keep", type=click.IntRange(1), default=20, show_default=True, help="Number of latest complete runs to leave."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@ROOT
def prune(keep: int, dry_run: bool, root: str | None) -> None:
    """Removes artifacts, logs and saved states of old runs on this machine.

    What is served, the last blessed model, and what newer runs have taken from the
    cache stay. Parameters and metrics of all runs stay too.
    """
    from tfx_distribute.pipelines.targets.local import pruning
    from tfx_distribute.pipelines.targets.local import runs as runs_lib

    with refusing_errors():
        for folder in runs_lib.find_roots(root):
            if dry_run:
                plan = pruning.make_plan(folder, list(runs_lib.iterate_runs([folder])), keep)
                shown = ["would remove", *map(str, plan.folders)]
            else:
                plan, shown = pruning.prune(folder, keep), ["removed"]
            size = f"{len(plan.runs)} runs, {len(plan.folders)} folders, {plan.num_bytes / 1e6:.1f} MB"
            click.echo("\n".join([f"{folder}: {shown[0]} {size}", *shown[1:]]))


def _cancel_local(run: "Run") -> None:
    import signal
    import socket

    from tfx_distribute.components.launchers import locks

    holder = locks.find_holder(str(run.root)) if run.state == "running" else None
    if run.state != "running":
        refuse(f"RUN: {run.id} has ended ({run.state}); `tfx-distribute runs list` shows which are running")
    if holder is None or holder.host != socket.gethostname():
        refuse(
            f"RUN: {run.id} is not a run of this machine; on its own ({holder or 'unknown'}), send SIGTERM to its process"
        )
    try:
        os.kill(holder.pid, signal.SIGTERM)
    except OSError as error:
        refuse(f"RUN: cannot send SIGTERM to {holder} ({error.strerror}); run `kill {holder.pid}` as its user")
    click.echo(f"{run.id}: sent SIGTERM to process {holder.pid}; it ends when it has saved its training")


def list_local(root: str | None, limit: int | None = None) -> "list[Run]":
    """Returns the latest runs on this machine; ends the program if there are none."""
    from tfx_distribute.pipelines.targets.local import runs as runs_lib

    with refusing_errors():
        found = runs_lib.iterate_runs(runs_lib.find_roots(root), None if root else warn)
        return list(itertools.islice(found, limit))


def find_local(root: str | None, name: str | None) -> "Run":
    """Finds a run on this machine; ends the program if there is none, or several."""
    from tfx_distribute.pipelines.targets.local import runs as runs_lib

    with refusing_errors():
        return runs_lib.find(runs_lib.find_roots(root), name, None if root else warn)


def _local_document(run: "Run") -> dict[str, Any]:
    more = {"spans": run.spans, "blessed": run.blessed, "unusable_baseline": run.unusable_baseline}
    return {**dataclasses.asdict(run), **more}


def _describe_state(run: "Run") -> str:
    """Returns a run's state; `not blessed` if its model did not meet its thresholds."""
    return "not blessed" if run.state == "complete" and run.blessed is False else run.state


def _format_local(run: "Run", anomalies: str, *parts: str) -> str:
    facts = {
        "pipeline": run.pipeline,
        "state": _describe_state(run),
        **_format_times(run),
        **run.data,
        "anomalies": anomalies,
        "blessed": "" if run.blessed is None else "yes" if run.blessed else "no: thresholds are not met",
    }
    nodes = [(node.name, node.state, node.seconds, f"from {node.from_run}" if node.from_run else "") for node in run.nodes]
    parameters = {**run.changes, **{f"hparams.{name}": value for name, value in run.hparams.items()}}
    return _format(run.id, facts, "node", nodes, parameters, *parts)


def _format_remote(run: "RemoteRun") -> str:
    facts = {"name": run.name, "state": run.state, **_format_times(run), "error": run.error}
    tasks = [(task.name, task.state, task.seconds, task.error) for task in run.tasks]
    return _format(run.id, facts, "step", tasks, run.parameters)


def _format_times(run: "Run | RemoteRun") -> dict[str, str]:
    return {"started": tables.format_time(run.started), "duration": format_duration(run.seconds)}


def _format(
    run_id: str,
    facts: "Mapping[str, str]",
    title: str,
    steps: "Sequence[tuple[str, str, float | None, str]]",
    parameters: "Mapping[str, Any]",
    *more: str,
) -> str:
    """Joins the parts of a run that are not empty."""
    pairs = [("run", run_id), *((name, text) for name, text in facts.items() if text)]
    rows = [[name, state, format_duration(seconds), note] for name, state, seconds, note in steps]
    table = tables.format_table([[title, "state", "time", ""], *rows]) if rows else ""
    return "\n\n".join(filter(None, (tables.format_table(pairs), table, _format_values("parameter", parameters), *more)))


def _format_values(title: str, values: "Mapping[str, Any]") -> str:
    rows = [[name, tables.format_value(value)] for name, value in values.items()]
    return tables.format_table([[title, "value"], *rows]) if rows else ""
