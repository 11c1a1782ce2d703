"""Defines the commands `schedules list`, `pause`, `resume` and `delete`."""

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from tfx_distribute.pipelines.cli import tables
from tfx_distribute.pipelines.cli.options import OUTPUT, calm, on_platforms

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.remote_runs import ScheduleChange
    from tfx_distribute.pipelines.targets.target import RemoteTarget

_ON_PLATFORM = on_platforms("Platform that the schedule is on.", "place", remote_only=True)


@click.group()
def schedules() -> None:
    """Lists, pauses, resumes and deletes schedules of `submit --cron`."""


@_ON_PLATFORM
@schedules.command("list")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of schedules.")
@OUTPUT
def list_(target_class: "type[RemoteTarget[Any]]", limit: int, output: str, **options: Any) -> None:
    """Lists schedules, the latest first."""
    with calm():
        found = target_class.open_runs(options).list_schedules(limit)
    rows = [["schedule", "name", "state", "cron", "next run"]]
    for each in found:
        next_run = tables.format_time(each.next_run) if each.next_run else ""
        rows.append([each.id, each.name, each.state, each.cron, next_run])
    tables.print_list(output, [dataclasses.asdict(schedule) for schedule in found], rows, "there are no schedules")


def _add_command(change: "ScheduleChange", done: str, text: str) -> None:
    """Adds the command that changes a schedule and says `done`; `text` is its help."""

    @_ON_PLATFORM
    @schedules.command(change, help=text)
    @click.argument("schedule")
    def command(schedule: str, target_class: "type[RemoteTarget[Any]]", **options: Any) -> None:
        with calm():
            target_class.open_runs(options).change_schedule(schedule, change)
        click.echo(f"{schedule}: {done}")


_add_command("pause", "paused", "Pauses a schedule: it starts no runs; those that run go on.")
_add_command("resume", "resumed", "Resumes a schedule that was paused.")
_add_command("delete", "deleted", "Deletes a schedule. Kubeflow Pipelines: none of its runs may be in progress.")
