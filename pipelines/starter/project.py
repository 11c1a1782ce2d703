"""Writes the texts of a new project's files."""

import json
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from tfx_distribute.pipelines.starter.first_model import FirstModel

TEMPLATES = Path(__file__).parent / "templates"
EXAMPLES = Path(__file__).parents[2] / "examples"  # of a checkout, or of the installed package

_WIDTH = 88  # of a line of Python
_MAX_CHARS = 40  # of a text in the row that is shown


def render(model: FirstModel, **settings: Any) -> dict[str, str]:
    """Returns the files of a project with a first model, name -> text.

    `settings` are what the templates need besides: `name` of the pipeline, `folder` of
    the project, `source` and `data`, the key and the path of the data in the pipeline
    file, and `is_sample`, True if they are the sample.
    """
    # Python and YAML are not escaped as HTML is.
    environment = jinja2.Environment(  # noqa: S701
        loader=jinja2.FileSystemLoader(TEMPLATES),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(literal=_literal, yaml=_yaml)
    environment.globals["assign"] = _assign
    settings |= {
        "model": model,
        "with_gaps": next((column.name for column in model.inputs if column.has_gaps), None),
        "row": _choose_row(model),
        **_describe_label(model),
    }
    files = environment.list_templates(["jinja"])
    return {file.removesuffix(".jinja"): environment.get_template(file).render(settings) for file in files}


def write_sample(file: Path) -> Path:
    """Writes scikit-learn's irises as a CSV file, and returns its path."""
    from sklearn.datasets import load_iris

    irises = load_iris(as_frame=True)
    numbers = irises.data.set_axis(["sepal_length_cm", "sepal_width_cm", "petal_length_cm", "petal_width_cm"], axis=1)
    numbers.assign(species=irises.target_names[irises.target]).to_csv(file, index=False)
    return file


def copy_example(example: str, folder: str, name: str) -> dict[str, str]:
    """Returns the files of an example, name -> text, for a new project."""
    files = {}
    for path in sorted((EXAMPLES / example).glob("*.*")):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"\A# yaml-language-server:.*\n", "", text)  # which names a file of the checkout
        text = re.sub(rf"^name: {example}\b", f"name: {name}", text, flags=re.MULTILINE)
        files[path.name] = text.replace(f"runs/{example}/", f"runs/{name}/").replace(f"examples/{example}/", f"{folder}/")
    return files


def _describe_label(model: FirstModel) -> dict[str, Any]:
    """Returns how good a model is that answers the same for each row."""
    values = model.label.present
    if model.classes:
        ranked = model.classes.most_common()
        share = ranked[0][1] * 100 // len(values) / 100
        return {"most_frequent": _literal(ranked[0][0]), "rarest": _literal(ranked[-1][0]), "share": share}
    deviation, median = statistics.pstdev(values), statistics.median(values)
    # The square root of squared errors would depend on which outliers the split has.
    error = statistics.fmean(abs(value - median) for value in values)
    digits = 2 - math.floor(math.log10(deviation))
    return {
        "mean": round(statistics.fmean(values), digits),
        "deviation": round(deviation, digits),
        "error": float(f"{error:.3g}"),
    }


def _choose_row(model: FirstModel) -> list[str]:
    """Returns the features of the first row with the fewest gaps, as Python."""
    rows = zip(*(column.values for column in model.inputs), strict=True)
    row = max(rows, key=lambda values: sum(value is not None and value == value for value in values))
    features = {}
    for column, value in zip(model.inputs, row, strict=True):
        if value is not None and value == value:
            values = value if isinstance(value, tuple) else [value]
            features[column.name] = f"[{', '.join(map(_feature_value, values))}]"
    return [f"{_literal(name)}: {values}" for name, values in features.items()]


def _feature_value(value: Any) -> str:
    if isinstance(value, float):
        return repr(float(f"{value:.7g}"))  # the digits of a float32
    if isinstance(value, int):
        return repr(value)
    text = _literal(value[:_MAX_CHARS])
    return f"b{text}" if text.isascii() and "\\u" not in text else f"{text}.encode()"


def _literal(value: Any) -> str:
    """Returns a text or a number as Python, in the quotes that formatters prefer."""
    is_quoting = isinstance(value, str) and '"' in value and "'" not in value
    return repr(value) if is_quoting else json.dumps(value, ensure_ascii=False)


def _yaml(text: str) -> str:
    return text if re.fullmatch(r"[\w./-]+", text) else json.dumps(text, ensure_ascii=False)


def _assign(name: str, items: Sequence[str], brackets: str) -> str:
    """Returns the assignment of a list or dictionary, formatted as ruff does."""
    line = f"{name} = {brackets[0]}{', '.join(items)}{brackets[1]}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name} = {brackets[0]}", *(f"    {item}," for item in items), brackets[1]])
