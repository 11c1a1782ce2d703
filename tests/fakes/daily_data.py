"""Writes the data of a day, whose label is a text."""

import random
from collections.abc import Sequence
from pathlib import Path


def write_day(
    folder: Path, name: str, shift: float = 0.0, columns: Sequence[str] = ("x", "y", "label"), is_noise: bool = False
) -> None:
    """Writes `NAME.csv`, 400 rows.

    Args:
      folder: Folder of all days; created if it is missing.
      name: The day.
      shift: Added to each `x`, which is from 0 to 1 otherwise.
      columns: The columns to write.
      is_noise: True if the label depends on nothing.
    """
    numbers = random.Random(name)  # noqa: S311 (data)
    rows = []
    for _ in range(400):
        x, y = numbers.random(), numbers.random()
        label = numbers.choice(["yes", "no"]) if is_noise else "yes" if x + y > 1 else "no"
        values = {"x": f"{x + shift:.3f}", "y": f"{y:.3f}", "label": label}
        rows.append(",".join(values[column] for column in columns))
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.csv").write_text("\n".join([",".join(columns), *rows]) + "\n")
