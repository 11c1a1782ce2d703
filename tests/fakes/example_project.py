"""Copies examples."""

import shutil
from pathlib import Path

import yaml

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def copy(folder: Path, example: str, csv: str = "", **changes: object) -> Path:
    """Copies an example; returns its pipeline file.

    Args:
      folder: Folder to copy it to.
      example: Name of the example.
      csv: Where the taxi example reads its data, if elsewhere.
      **changes: Parts of the pipeline file that differ; None for those to leave out.
    """
    shutil.copytree(EXAMPLES / example, folder, dirs_exist_ok=True)
    file = folder / "pipeline.yaml"
    document = yaml.safe_load(file.read_text())
    if csv and example == "taxi":
        document["data"]["csv"] = csv
    file.write_text(yaml.safe_dump({name: part for name, part in (document | changes).items() if part is not None}))
    return file
