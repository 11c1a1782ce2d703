"""Tests hostile input at the command line: a table of inputs and messages.

A new finding becomes a new row.
"""

import time

import pytest
from click.testing import CliRunner
from small_project import PIPELINE

from tfx_distribute.pipelines.cli.main import main

SECONDS = 10.0  # of CPU time for a row

pytestmark = pytest.mark.timeout(120)  # ends a row that waits forever


def refused(message: str, *arguments: str, command: str = "validate") -> str:
    """Checks that a command quickly exits with 2 and a readable message; returns it."""
    began = time.process_time()
    result = CliRunner().invoke(main, [command, "pipeline.yaml", *arguments])
    seconds = time.process_time() - began
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output
    assert len(result.output) < 3000, "a message, not what was given"
    assert seconds < SECONDS
    return result.output


def hparams(text: str) -> str:
    return PIPELINE.replace("{rate: 0.1, text: abc}", f"{{rate: {text}}}")


def parameters(text: str) -> str:
    return PIPELINE.replace("epochs: 1, per_replica_batch_size: 2", text)


YAML_ROWS = [
    ("empty", "", "a pipeline is a mapping with the keys name, module"),
    ("a list on top", "- 1\n", "a pipeline is a mapping"),
    ("two documents", PIPELINE + "---\n" + PIPELINE, "line 8: not valid YAML: expected a single document"),
    ("tabs", "name: mine\n\tmodule: model.py\n", "line 2: not valid YAML: "),
    ("NUL byte", "name: mine\nmodule: a\0b\n", "line 2: not valid YAML: the character '\\x00' is not allowed"),
    ("deep lists", "name: " + "[" * 10_000, "line 1: is nested too deeply"),
    ("recursive alias", "name: &a [*a]\n", "line 1: is nested too deeply, or refers to itself"),
    ("duplicate key", PIPELINE + "name: other\n", "line 8: 'name' is also on line 1"),
    ("key 1", hparams("0.1, 1: 2"), "line 7: a key is not a string; write it in quotes"),
    ("key that is a list", "name: mine\n[a]: 1\n", "line 2: a key is not a string"),
    ("very long name", PIPELINE.replace("mine", "a" * 100_000), "... (100,002 characters) is not allowed"),
    ("!!int abc", hparams("!!int abc"), "line 7: not valid YAML: invalid literal for int() with base 10: 'abc'"),
    ("5,000 digits", parameters("epochs: " + "9" * 5000), "line 6: not valid YAML: Exceeds the limit"),
    (
        "!!python/object",
        "name: !!python/object:os.system {}\n",
        "line 1: not valid YAML: the tag !!python/object:os.system is",
    ),
    ("!own", hparams("!own x"), "line 7: not valid YAML: the tag !own is not allowed"),
    ("list as hparam", hparams("[1]"), "line 7: trainer.hparams.rate: [1] is not allowed; write a number, text, true"),
    ("null as data", PIPELINE.replace("{csv: data}", "null"), "line 3: data: is empty; write a value"),
    (
        "too many shards",
        PIPELINE + f"shards: {{num_shards: {2**64}}}\n",
        "line 8: shards.num_shards: 18446744073709551616 is not allowed",
    ),
    ("split beyond 31 bits", PIPELINE.replace("csv: data", f"csv: data, splits: {{train: {2**31}}}"), "data.splits.train"),
    ("NUL in a path", PIPELINE.replace("csv: data", 'csv: "a\\0b"'), "line 3: data.csv: 'a\\x00b': "),
    ("empty path", PIPELINE.replace("csv: data", "csv: ''"), "line 3: data.csv: the path is empty"),
    ("package ..", PIPELINE.replace("csv: data", "csv: package://../x"), "there is no installed package '..'"),
    ("module .x", PIPELINE.replace("model.py", ".x"), "module: '.x' is not the name of a module"),
    ("module __main__", PIPELINE.replace("model.py", "__main__"), "module: '__main__' is not the name of a module"),
    ("compiled module", PIPELINE.replace("model.py", "_ctypes"), ".so is not Python source"),
    ("built-in module", PIPELINE.replace("model.py", "sys"), "module: 'sys' is not installed; for a file"),
    (
        "root with *",
        PIPELINE + "targets: {local: {root: 'a*'}}\n",
        "has the character '*', which TFX and Beam read as part of a pattern",
    ),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in YAML_ROWS], ids=[row[0] for row in YAML_ROWS])
def test_pipeline_files(project, text, message):
    (project / "pipeline.yaml").write_text(text)
    refused(message)


def test_a_pipeline_file_in_another_encoding(project):
    (project / "pipeline.yaml").write_bytes(PIPELINE.encode("utf-16"))
    refused("pipeline.yaml: not a text file in UTF-8 (invalid start byte at byte 0)")


def test_a_folder_is_not_a_pipeline_file(project):
    (project / "pipeline.yaml").unlink()
    (project / "pipeline.yaml").mkdir()
    refused("pipeline.yaml: Is a directory")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("schema.pbtxt", b"\x80\x81", "data.schema_file: cannot read "),
        ("schema.pbtxt", b"feature {", "is not a schema in text format: "),
        ("model.py", b"def build_model(context): ...\n\0", "model.py"),
        ("model.py", b"\x80\x81\n", "model.py"),
    ],
    ids=["binary", "unfinished", "NUL", "not UTF-8"],
)
def test_contents_of_other_files(project, file, content, message):
    (project / "pipeline.yaml").write_text(PIPELINE.replace("csv: data", "csv: data, schema_file: schema.pbtxt"))
    (project / "schema.pbtxt").write_text('feature { name: "x" type: FLOAT }\n')
    (project / file).write_bytes(content)
    refused(message)


def test_lock_files_of_editors_are_not_modules(project):
    (project / ".#model.py").symlink_to("me@here.123")
    assert CliRunner().invoke(main, ["validate", "pipeline.yaml"]).exit_code == 0


PARAMETER_ROWS = [
    ("x", "-p x: write -p name=value"),
    ("num_workers=", "-p num_workers=: num_workers: '' is not allowed: input should be a valid integer"),
    ("num_workers=1e3", "num_workers: 1000.0 is not allowed: input should be a valid integer"),
    ("num_workers=.nan", "num_workers: nan is not allowed: input should be a valid integer"),
    ("num_workers=null", "-p num_workers=null: write -p name=value"),
    ("num_parameter_servers=1001", "num_parameter_servers: 1001 is not allowed"),
    (f"num_shards={2**63}", "num_shards: 9223372036854775808 is not allowed: input should be less than or equal to 100000"),
    ("num_workers=\udce4", "-p 'num_workers=\\udce4': is not valid text in the encoding of the terminal"),
    ("num_workers=\x1b[31m", "-p 'num_workers=\\x1b[31m'"),
    ("rate=2024-13-45", "-p rate=2024-13-45: rate is 0.1 in the pipeline file; write a float"),
    ("rate=[1]", "-p rate=[1]: write -p name=value"),
    ("num_wokers=2", "unknown key 'num_wokers'; did you mean 'num_workers'?"),
    ("a" * 100_000 + "=2", "... (100,000 characters)'; allowed: "),
]


@pytest.mark.parametrize(("word", "message"), PARAMETER_ROWS, ids=[row[0][:30] for row in PARAMETER_ROWS])
def test_parameters(project, word, message):
    refused(message, "-p", word)


def test_the_last_value_of_a_parameter_counts(project):
    refused("-p epochs=x: epochs: 'x' is not allowed", "-p", "epochs=1", "-p", "epochs=x")
    assert CliRunner().invoke(main, ["validate", "pipeline.yaml", "-p", "epochs=x", "-p", "epochs=1"]).exit_code == 0


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=2024-13-45", "2024-13-45"),
        ("text=2024-01-31", "2024-01-31"),
        ("text=", ""),
        ("text=a #b", "a #b"),
        ("text=# b", "# b"),
        ("text=one\ntwo", "one\ntwo"),
        ("text='5'", "5"),
        ("text=größe", "größe"),
        ("text=*.csv", "*.csv"),
        ("text=a=b", "a=b"),
        ("rate=1e-3", 0.001),
        ("rate=5", 5),
    ],
)
def test_values_arrive_as_they_were_written(project, word, value):
    from tfx_distribute.pipelines.spec import loader

    spec = loader.override(loader.load("pipeline.yaml"), loader.parse_parameters([word]))
    assert spec.trainer.hparams[word.partition("=")[0]] == value


def test_merged_keys_keep_their_lines(project):
    text = PIPELINE.replace("data: {csv: data}", "data: &data\n  csv: data\n  splits: {train: 0}")
    (project / "pipeline.yaml").write_text(text.replace("data: &data", "data: &data\n  <<: {parquet: x}"))
    assert "line 4: data: write exactly one of" in refused("") or "line 6: data.splits.train" in refused("")
