"""Copies examples."""

import shutil
from pathlib import Path

import yaml

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def copy(folder: Path, example: str, csv: str = "", **changes: object) -> Path:
    """Copies an example; returns its pipeline file.

    Args:
      folder: Folder to copy it to.
      example: `digits` or `taxi`.
      csv: Where the taxi example reads its data.
      **changes: Parts of the pipeline file that differ.
    """
    shutil.copytree(EXAMPLES / example, folder, dirs_exist_ok=True)
    file = folder / "pipeline.yaml"
    document = yaml.safe_load(file.read_text())
    if example == "taxi":
        document["data"]["csv"] = csv
    file.write_text(yaml.safe_dump(document | changes))
    return file
