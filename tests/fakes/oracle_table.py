"""Keeps the oracle's verdicts, and makes docs/models.md of them. Imports no TensorFlow.

    python tests/fakes/oracle_table.py

writes the document; `oracle.py --update` writes the verdicts first.
"""

import ast
import json
import textwrap
from collections.abc import Iterable
from pathlib import Path

import kind_exceptions
import tfx_lines
from oracle_examples import EXAMPLES
from oracle_outcomes import BATCH, EPOCHS, LOGS_WITHIN, SAME, SAVED_EVERY, SERVED, STRATEGIES, WEIGHTS_WITHIN

from tfx_distribute.trainer_module.job.strategy_info import strategy_named

COLUMNS = (*STRATEGIES, SERVED)
VERDICTS = Path(__file__).resolve().parents[1] / "expected" / "models.json"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "models.md"

# Strategy -> how the oracle sets it up, and where it differs from `fit` by design.
_STRATEGY_NOTES = {
    "default": "one device",
    "one_device": "one device",
    "mirrored": "two replicas",
    "multi_worker_mirrored": "two workers, each with a replica",
    "central_storage": "two replicas",
    "parameter_server": "one worker, because several have no fixed order, and one server",
    "model_parallel": "a mesh of 2 x 2 devices, and batches of the same size, under `fit` too",
}

Verdicts = dict[str, dict[str, dict[str, str]]]  # Keras version -> kind -> strategy -> verdict


def descriptions() -> dict[str, str]:
    """Returns the first line of the docstring of each kind of model, by name."""
    module = ast.parse((Path(__file__).parent / "kinds.py").read_text())  # importing it takes seconds
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: (ast.get_docstring(node) or "").partition("\n")[0] for node in functions if not node.name.startswith("_")
    }


def strategies(keras_version: int) -> list[str]:
    """Returns the columns of a generation of Keras: its strategies, and `SERVED`."""
    return [
        *(name for name in STRATEGIES if keras_version == 2 or "keras_version" not in strategy_named(name).refuses),
        SERVED,
    ]


def load() -> dict[str, Verdicts]:
    """Returns the verdicts of each line of TFX."""
    return json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {}


def update(keras_version: int, cells: dict[str, str]) -> None:
    """Adds verdicts of cells `kind/strategy`, and writes the document."""
    verdicts = load()
    line = tfx_lines.installed()
    measured = verdicts.setdefault(line, {}).setdefault(str(keras_version), {})
    for cell, verdict in cells.items():
        kind, strategy = cell.split("/")
        measured.setdefault(kind, {})[strategy] = verdict
    verdicts[line] = {
        version: {
            kind: {name: kinds[kind][name] for name in COLUMNS if name in kinds[kind]}
            for kind in descriptions()
            if kind in kinds
        }
        for version, kinds in sorted(verdicts[line].items())
    }
    VERDICTS.write_text(json.dumps(dict(sorted(verdicts.items())), indent=1) + "\n")
    DOCUMENT.write_text(document(verdicts), encoding="utf-8")


def document(verdicts: dict[str, Verdicts]) -> str:
    """Returns the text of docs/models.md."""
    footnotes: dict[str, int] = {}

    def mark(text: str) -> str:
        if text.startswith("refused: "):
            return "refused"  # the message says why
        return f"({footnotes.setdefault(text, len(footnotes) + 1)})"

    def mark_of(kind: str, strategy: str, version: int, line: str) -> str:
        verdict = verdicts.get(line, {}).get(str(version), {}).get(kind, {}).get(strategy, "")
        return "✓" if verdict == SAME else mark(verdict) if verdict else "-"

    def cell(kind: str, strategy: str) -> str:
        marks = {}
        for version in (2, 3):
            if strategy in strategies(version):
                by_line = {f"TFX {line}": mark_of(kind, strategy, version, line) for line in tfx_lines.LINES}
                marks[f"Keras {version}"] = _unless_same(by_line, " ", " and ")
        return _unless_same(marks, ": ", ", ")

    notes = kind_exceptions.NOTES
    everywhere, but_split, others = [], [], []
    for kind, description in descriptions().items():
        text = f"`{kind}`: {description[0].lower()}{description[1:].rstrip('.')}"
        text += f" {mark(notes[kind])}" if kind in notes else ""
        columns: dict[str, list[str]] = {}
        for strategy in COLUMNS:
            columns.setdefault(cell(kind, strategy), []).append(f"`{strategy}`")
        columns.pop("✓", None)
        differences = "; ".join(f"{', '.join(names)} {marks}" for marks, names in columns.items())
        if differences == "`model_parallel` refused":
            but_split.append(text)
        elif differences:
            others.append(f"{text}; except {differences}")
        else:
            everywhere.append(text)
    return "\n\n".join(
        [
            "# Kinds of model",
            _wrap(
                "Does a model train here as under Keras's `fit`? Each kind was trained with `fit` on one device, and by "
                "this package under each strategy, on the same examples. They agree if"
            ),
            _list(
                [
                    f"no weights differ by more than {_decimal(WEIGHTS_WITHIN)} of the largest weight;",
                    f"no logged values of training and evaluation differ by more than {_decimal(LOGS_WITHIN)} of the value;",
                    "callbacks are called with the same hooks in the same order, with the same names of logs;",
                    "the exported model answers raw examples without label and weight, each alone as in a batch.",
                ]
            ),
            "## Agree under every strategy",
            _wrap("With Keras 2, and with Keras 3 where [the strategy has it](strategies.md#compatibility), a model that"),
            _list(everywhere),
            "## Agree under every strategy but `model_parallel`",
            _wrap(
                "Splitting the model over devices is refused, and the message says why. (A task and a subclass may read "
                "every feature, and some are sparse here.) A model that"
            ),
            _list(but_split),
            "## Agree, but not everywhere",
            _wrap(
                "A refusal says why; a number stands for a note. `served` is about the exported model. Where Keras 2 and "
                "3, or TFX 1.16 and 1.21, differ, both are named. A model that"
            ),
            _list(others),
            "## Notes",
            "\n".join(_item(text, f"{number}. ") for text, number in footnotes.items()),
            "## How it is measured",
            _wrap(
                f"The models are small. They see {EXAMPLES['train']} examples in {EPOCHS} epochs, in global batches of at "
                f"most {BATCH}, and are evaluated on {EXAMPLES['eval']}, so that batches and replicas have different "
                f"sizes. The state is saved every {SAVED_EVERY} steps. At the end of the second epoch the training is "
                "interrupted, and resumes in the middle of that epoch. All of it runs on CPUs:"
            ),
            _list(f"`{name}`: {_STRATEGY_NOTES[name]}." for name in STRATEGIES),
            _wrap(
                "`tests/fakes/oracle.py` measures the kinds and writes this document. Tests measure most kinds again "
                "with one generation of Keras, under some of the strategies."
            ),
        ]
    ) + "\n"  # fmt: skip


def _unless_same(texts: dict[str, str], of: str, between: str) -> str:
    """Returns the text that all have, or each with its name."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return between.join(f"{name}{of}{text}" for name, text in texts.items())


def _decimal(number: float) -> str:
    return f"{number:.9f}".rstrip("0")


def _wrap(text: str) -> str:
    return textwrap.fill(text, 88, break_long_words=False, break_on_hyphens=False)


def _list(items: Iterable[str]) -> str:
    return "\n".join(_item(item, "* ") for item in items)


def _item(text: str, bullet: str) -> str:
    indent = " " * len(bullet)
    return textwrap.fill(
        text, 88, initial_indent=bullet, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    DOCUMENT.write_text(document(load()), encoding="utf-8")
