"""Defines the commands `schedules list`, `pause`, `resume` and `delete`."""

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from tfx_distribute.pipelines.cli import runs as runs_cli
from tfx_distribute.pipelines.cli.options import OUTPUT, add_options, calm
from tfx_distribute.pipelines.cli.remote import REMOTE_TARGETS, TARGET

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.remote_runs import ScheduleChange


@click.group()
def schedules() -> None:
    """Lists, pauses, resumes and deletes schedules of `submit --cron`."""


@schedules.command("list")
@TARGET
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of schedules.")
@OUTPUT
def list_(target_name: str, limit: int, output: str, **options: Any) -> None:
    """Lists schedules, the latest first."""
    from tfx_distribute.pipelines.cli import tables

    platform = runs_cli.open_platform(target_name, None, options)
    with calm():
        found = platform.list_schedules(limit)
    if output == "json":
        click.echo(tables.to_json([dataclasses.asdict(schedule) for schedule in found]))
    elif found:
        rows = [
            [each.id, each.name, each.state, each.cron, tables.format_time(each.next_run) if each.next_run else ""]
            for each in found
        ]
        click.echo(tables.format_table([["schedule", "name", "state", "cron", "next run"], *rows]))
    else:
        click.echo("there are no schedules", err=True)


def _make_command(change: "ScheduleChange", done: str, text: str) -> click.Command:
    """Makes the command that changes a schedule and says `done`; `text` is its help."""

    @click.command(change, help=text)
    @click.argument("schedule")
    @TARGET
    def command(schedule: str, target_name: str, **options: Any) -> None:
        platform = runs_cli.open_platform(target_name, None, options)
        with calm():
            platform.change_schedule(schedule, change)
        click.echo(f"{schedule}: {done}")

    return command


schedules.add_command(_make_command("pause", "paused", "Pauses a schedule: it starts no runs; those that run go on."))
schedules.add_command(_make_command("resume", "resumed", "Resumes a schedule that was paused."))
schedules.add_command(
    _make_command("delete", "deleted", "Deletes a schedule. Kubeflow Pipelines: none of its runs may be in progress.")
)
for _target in REMOTE_TARGETS.values():
    for _command in schedules.commands.values():
        add_options(_command, runs_cli.run_options(_target))
