"""Defines the commands `schema show`, `diff` and `accept`."""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfx_distribute.pipelines.cli import runs as runs_cli
from tfx_distribute.pipelines.cli.options import PIPELINE, calm, load, refuse
from tfx_distribute.pipelines.targets.local.target import LocalTarget

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.local.runs import Run

DEFAULT_FILE = "schema.pbtxt"  # next to the pipeline file
RUN = click.option("--run", help="Id of the run, or its beginning; default the latest run.")
ROOT = click.option("--root", type=click.Path(file_okay=False), help="Folder of the pipeline's runs.")


@click.group()
def schema() -> None:
    """Shows the schema of a pipeline's data, and keeps it in a file."""


@schema.command()
@runs_cli.RUN
@runs_cli.ROOT
def show(run: str | None, root: str | None) -> None:
    """Prints the schema that a run on this machine has used."""
    found = runs_cli.find_local(root, run)
    with calm():
        from tfx_distribute.pipelines.targets.local import schemas

        text = schemas.read(found)
    click.echo(text, nl=False)


@schema.command()
@PIPELINE
@RUN
@ROOT
def diff(pipeline: str, run: str | None, root: str | None) -> None:
    """Prints what `accept` would change in the schema file."""
    path, before, after, _ = _propose(pipeline, run, root)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), "accepted", lineterm="")
    click.echo("\n".join(lines) or f"{path}: the data agree with it")


@schema.command()
@PIPELINE
@RUN
@ROOT
def accept(pipeline: str, run: str | None, root: str | None) -> None:
    """Changes the schema file so that the data of a run agree with it.

    Without data.schema_file, writes schema.pbtxt next to PIPELINE. Comments in the file
    are lost; to keep them, edit it as `schema diff` shows.
    """
    path, before, after, found = _propose(pipeline, run, root)
    if before == after:
        click.echo(f"{path}: the data agree with it")
        return
    from tfx_distribute.trainer_module import atomic_files

    atomic_files.write(str(path), after)
    if before:
        click.echo(f"{path}: has what is new in the data of run {found.id}; run again without --if-new")
    else:
        click.echo(f"{path}: written from the data of run {found.id}")
        click.echo(f"write schema_file: {path.name} under data in {pipeline}, which the next runs are checked against")


def _propose(pipeline: str, run: str | None, root: str | None) -> "tuple[Path, str, str, Run]":
    """Returns the schema file, its text, the proposed text, and the run."""
    target, _ = load(pipeline, (), LocalTarget, {"root": root})
    curated = target.spec.data.schema_file
    if curated and "://" in curated:
        refuse(f"data.schema_file: {curated} is not on this machine; copy it here, accept, and copy it back")
    path = Path(curated) if curated else Path(pipeline).absolute().parent / DEFAULT_FILE
    if not curated and path.exists():
        refuse(f"{path}: exists; write schema_file: {path.name} under data in {pipeline}")
    found = runs_cli.find_local(str(target.paths.root), run)
    with calm():
        from tfx_distribute.pipelines.targets.local import schemas

        before = path.read_text(encoding="utf-8") if curated else ""
        return path, before, schemas.propose(found, before if curated else None), found
