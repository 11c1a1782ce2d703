"""Defines the commands `models list` and `rollback`."""

from typing import TYPE_CHECKING

import click

from tfx_distribute.pipelines.cli import runs as runs_cli
from tfx_distribute.pipelines.cli import tables
from tfx_distribute.pipelines.cli.options import OUTPUT, calm

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.local.models import Version


@click.group()
def models() -> None:
    """Lists pushed models, and makes an older one the newest again."""


@models.command("list")
@runs_cli.ROOT
@OUTPUT
def list_(root: str | None, output: str) -> None:
    """Lists the versions that runs on this machine have pushed, the newest first."""
    from tfx_distribute.pipelines.targets.local import models as models_lib

    found = models_lib.list_versions(runs_cli.list_local(root))
    rows = [["version", "state", "pushed", "run", "training"]]
    rows += [[each.name, _state(each), tables.format_time(each.pushed), *_describe_run(each)] for each in found]
    documents = [{**vars(each), "run": each.run.id if each.run else None} for each in found]
    tables.print_list(output, documents, rows, "no model has been pushed")


@models.command()
@click.argument("version")
@runs_cli.ROOT
def rollback(version: str, root: str | None) -> None:
    """Pushes an older version again, as a new one, which model servers load.

    Later runs compare with it, and do not push again the models that came after it.
    """
    from tfx_distribute.pipelines.targets.local import models as models_lib

    with calm():
        found = models_lib.find(models_lib.list_versions(runs_cli.list_local(root)), version)
        new = models_lib.roll_back(found)
    click.echo(f"{found.folder.parent / new}: version {found.name} again, of run {_describe_run(found)[0]}")


def _state(version: "Version") -> str:
    state = "served" if version.is_served else ""
    return " ".join(filter(None, (state, f"rollback of {version.rollback_of}" if version.rollback_of else "")))


def _describe_run(version: "Version") -> tuple[str, str]:
    """Returns the id of a version's run, and the validation metrics of its epoch."""
    if version.run is None:
        return "unknown", ""
    properties = version.run.model.properties if version.run.model else {}
    prefix = "exported_val_" if "exported_epoch" in properties else "training_val_"
    values = {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
    return version.run.id, ", ".join(f"{name} {tables.format_value(value)}" for name, value in sorted(values.items()))
