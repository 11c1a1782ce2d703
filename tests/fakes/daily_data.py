"""Writes the data of a day, whose label is a text."""

import random
from pathlib import Path


def write_day(folder: Path, name: str, shift: float = 0.0) -> None:
    """Writes `NAME.csv`, 400 rows.

    Args:
      folder: Folder of all days; created if it is missing.
      name: The day.
      shift: Added to each `x`, which is from 0 to 1 otherwise.
    """
    numbers = random.Random(name)  # noqa: S311 (data)
    rows = []
    for _ in range(400):
        x, y = numbers.random(), numbers.random()
        rows.append(f"{x + shift:.3f},{y:.3f},{'yes' if x + y > 1 else 'no'}")
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.csv").write_text("\n".join(["x,y,label", *rows]) + "\n")
