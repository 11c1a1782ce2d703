"""Tests that control characters of foreign texts do not reach the terminal."""

import io

import pytest
from click.testing import CliRunner
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tfx_distribute.pipelines.cli import runs, terminal
from tfx_distribute.pipelines.cli.console import SafeConsole
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.targets.local.runs import Run

CLEARS = "\x1b[2J\x9b2J\u202e"
SHOWN = r"\x1b[2J\x9b2J\u202e"


def test_names_and_logs_are_printed_with_escapes(tmp_path, monkeypatch):
    (tmp_path / "chief-0.log").write_text(f"loss {CLEARS}\nend\n", encoding="utf-8")
    monkeypatch.setattr(
        runs, "find_local", lambda root, name: Run("1", "a", tmp_path, "failed", 0.0, 1.0, (), logs=tmp_path)
    )
    logs = CliRunner().invoke(main, ["runs", "logs", "1", "--process", "chief-0"], color=True)
    assert logs.output == f"loss {SHOWN}\nend\n"
    (tmp_path / "chief-0.log").write_text("\0" * 5000)
    assert CliRunner().invoke(main, ["runs", "logs", "1", "--process", "chief-0"]).output == r"\x00..."
    refused = CliRunner().invoke(main, ["validate", f"{tmp_path}/{CLEARS}.yaml"], color=True)
    assert refused.output == f"Error: {tmp_path}/{SHOWN}.yaml: No such file or directory\n"


def test_a_progress_bar_is_a_line_for_each_state():
    bar = "\x1b[1m1/2\x1b[0m loss 0.5" + "\x08" * 12 + "\r\x1b[1m2/2\x1b[0m loss 0.4\r\nend\n"
    assert terminal.escape(bar) == "1/2 loss 0.5\n2/2 loss 0.4\nend\n"


@pytest.mark.parametrize("live", [True, False])
def test_a_console_has_escapes_of_its_own_only(live):
    stream = io.StringIO()
    console = SafeConsole(file=stream, force_terminal=True, width=80, color_system="standard", highlight=False)
    table = Table.grid()
    table.add_row(f"row {CLEARS}")
    if live:
        with Live(table, console=console, auto_refresh=False):
            pass
    else:
        console.print(f"text {CLEARS}", style="red", markup=False)
        console.print(Text.assemble((f"part {CLEARS}", "green"), " and ", CLEARS))
        assert f"\x1b[31mtext {SHOWN}\x1b[0m" in stream.getvalue()
        assert f"\x1b[32mpart {SHOWN}\x1b[0m and {SHOWN}" in stream.getvalue()
    assert not any(character in stream.getvalue() for character in ("\x1b[2J", "\x9b", "\u202e"))
