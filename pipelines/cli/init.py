"""Defines the command `init`: the files of a new project."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfx_distribute.pipelines.cli.options import refuse, refusing_errors
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from tfx_distribute.pipelines.starter.first_model import FirstModel

EXAMPLES = ("digits", "images", "recommendation", "taxi", "text")
SAMPLE, SAMPLE_LABEL = "iris.csv", "species"


@click.command()
@click.argument("folder", metavar="NAME", type=click.Path())
@click.option("--from", "data", type=click.Path(), help="Your data: a CSV or Parquet file, or a folder of them.")
@click.option("--label", help="Column of your data that the model predicts.")
@click.option("--example", type=click.Choice(EXAMPLES), help="Example to copy.")
def init(folder: str, data: str | None, label: str | None, example: str | None) -> None:
    """Makes a folder with a pipeline, a model and a test to begin with.

    With --from and --label, the model predicts a column of your data from the others: a
    class if the column has texts or few integers, else a number. With neither, it
    predicts the species of irises. The last part of NAME becomes the pipeline's name.
    """
    if (data is None) != (label is None):
        refuse("--from and --label: belong together; write --from FILE --label COLUMN")
    if data and example:
        refuse("--example: an example has data of its own; leave out --from and --label, or --example")
    with refusing_errors():
        name = _check_folder(Path(folder))
        if example:
            from tfx_distribute.pipelines.starter import project

            files = project.copy_example(example, folder, name)
        else:
            files = _make_first_model(Path(folder), name, data, label)
    os.makedirs(folder, exist_ok=True)
    for file, text in files.items():
        Path(folder, file).write_text(text, encoding="utf-8")
    click.echo(f"wrote       {folder}: {', '.join(files)}")
    click.echo(f"next        tfx-distribute run {folder}/pipeline.yaml")


def _check_folder(folder: Path) -> str:
    """Returns the pipeline's name; refuses an invalid one, and a folder with files."""
    from tfx_distribute.pipelines.spec.pipeline import NAME_PATTERN

    name = folder.resolve().name
    if not re.fullmatch(NAME_PATTERN, name):
        example = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-") or "my-model"
        raise ConfigurationError(
            f"{name!r} is not a valid name of a pipeline, which has lower-case letters, digits and hyphens, at most 63; "
            f"use e.g. {example}"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder}: already exists, and is not an empty folder; use another name, or remove it")
    return name


def _make_first_model(folder: Path, name: str, data: str | None, label: str | None) -> dict[str, str]:
    from tfx_distribute.components.example_gen.formats import FORMATS
    from tfx_distribute.pipelines.starter import first_model, project

    with tempfile.TemporaryDirectory() as temporary:
        path = Path(data) if data else project.write_sample(Path(temporary, SAMPLE))
        source = _find_source(path)
        try:
            files = FORMATS[source].list_files(str(path))
        except (DataError, OSError) as error:
            raise ConfigurationError(f"--from: {error}") from error
        model = first_model.choose(first_model.read(source, files), label or SAMPLE_LABEL)
        sample = {} if data else {SAMPLE: path.read_text(encoding="utf-8")}
    for word, text in _describe(model):
        click.echo(f"{word:<12}{text}")
    project_data = os.path.relpath(path.resolve(), folder.resolve()) if data else SAMPLE
    texts = project.render(model, name=name, folder=str(folder), source=source, data=project_data, is_sample=data is None)
    return {**texts, **sample}


def _find_source(path: Path) -> str:
    """Returns the key in a pipeline file for the data at a path."""
    from tfx_distribute.components.example_gen.names import is_data_file

    names = sorted(filter(is_data_file, os.listdir(path))) if path.is_dir() else [path.name]
    for source in ("csv", "parquet"):
        if names and f".{source}" in names[0]:
            return source
    raise ConfigurationError(
        f"--from: {path} has none of the endings .csv and .parquet; rename the files if they have one of these "
        "formats, or convert them"
    )


def _describe(model: "FirstModel") -> Iterator[tuple[str, str]]:
    """Yields what the model predicts, from which columns, and which are left out."""
    kind = f"one of {len(model.classes)} classes" if model.classes else "a number"
    yield "predicts", f"{model.label.name}: {kind}, from {len(model.label.values):,} rows"
    for word in ("numbers", "categories", "texts"):
        if columns := getattr(model, word):
            yield word, ", ".join(column.name for column in columns)
    for name, reason in model.left_out.items():
        yield "left out", f"{name}: {reason}"
