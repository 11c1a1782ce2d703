"""Tests that a mistake in a pipeline file gives a message with line and value."""

import textwrap
from pathlib import Path

import pytest

from tfx_distribute.pipelines.spec import loader
from tfx_distribute.trainer_module.errors import ConfigurationError

GOOD = """\
name: mine
module: model.py
data:
  csv: data
transform: {}
trainer:
  label: y
  parameters:
    strategy: mirrored
    epochs: 3
  hparams:
    rate: 0.1
evaluate:
  metrics:
    AUC: {lower_bound: 0.5}
push: {}
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "pipeline.yaml"
        path.write_text(textwrap.dedent(text))
        return path

    return write


def problem(path: Path) -> str:
    with pytest.raises(ConfigurationError) as error:
        loader.load(path)
    return str(error.value).replace(f"{path}, ", "")


def test_good_file(write, tmp_path):
    spec = loader.load(write(GOOD))
    assert (spec.name, spec.trainer.parameters.strategy, spec.trainer.hparams) == ("mine", "mirrored", {"rate": 0.1})
    assert spec.data.source == ("csv", str(tmp_path / "data")), "relative to the file"
    assert spec.module == str(tmp_path / "model.py")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "strategy: mirrored",
            "stratgy: mirrored",
            "line 9: unknown key 'trainer.parameters.stratgy'; did you mean 'strategy'? allowed: strategy, num_workers,",
        ),
        (
            "strategy: mirrored",
            "strategy: miroired",
            "line 9: trainer.parameters.strategy: there is no strategy 'miroired'; choose one of default, one_device,",
        ),
        (
            "epochs: 3",
            "num_workers: 0",
            "line 10: trainer.parameters.num_workers: 0 is not allowed: input should be greater than or equal to 1",
        ),
        (
            "epochs: 3",
            "num_workers: 2",
            "line 10: trainer.parameters.num_workers: strategy 'mirrored' trains in one process, but num_workers is 2",
        ),
        (
            "    epochs: 3",
            "    epochs: 3\n    train_steps: 9",
            "line 10: trainer.parameters.epochs: train_steps=9 and epochs=3 both",
        ),
        (
            "csv: data",
            "csv: data\n  tfrecord: more",
            "line 3: data: write exactly one of csv, tfrecord, parquet, images, example_gen",
        ),
        ("csv: data", "csv: data\n  splits: {eval: 1}", "line 5: data.splits: one has to be called 'train'; here: eval"),
        (
            "csv: data",
            "csv: package://no_such_package/x",
            "line 4: data.csv: there is no installed package 'no_such_package'",
        ),
        (
            "rate: 0.1",
            "seed: 3",
            "line 11: trainer.hparams: 'seed' is a pipeline parameter; write it under trainer.parameters",
        ),
        ("name: mine", "name: Mine", "line 1: name: 'Mine' is not allowed: string should match pattern"),
        ("label: y", "label: y\n  label: z", "line 8: 'label' is also on line 7"),
        ("name: mine\n", "", "line 1: name: is missing"),
        (
            "csv: data",
            "csv: data\n  splits: {train: 1, test: 1}",
            "line 14: evaluate: there is no split 'eval'; data.splits has",
        ),
        ("  label: y\n", "", "line 12: evaluate: the name of the label is missing"),
        ("label: y", "label: {a: y, b: z}", "line 13: evaluate: metrics.AUC: no output_name; write one of a, b"),
        (
            "AUC: {",
            "AUC: {output_name: a, ",
            "line 13: evaluate: metrics.AUC: there is no label for the output 'a'; leave it out: label names no outputs",
        ),
        # What was below these keys may have been commented out.
        (
            "transform: {}",
            "transform:",
            "line 5: transform: is empty; write a value ({} for a section's defaults), or leave",
        ),
        ("  metrics:\n    AUC: {lower_bound: 0.5}\n", "", "line 13: evaluate: is empty; write a value"),
        (
            "AUC: {lower_bound: 0.5}",
            "AUC: {change: {}}",
            "line 15: evaluate.metrics.AUC.change: write absolute, relative or both",
        ),
        (
            "push: {}",
            "validate: {limits: {}}",
            "line 16: unknown key 'validate.limits'; allowed: anomalies, drift, skew, stop_on_anomalies",
        ),
        ("rate: 0.1", "rate: [1]", "line 12: trainer.hparams.rate: [1] is not allowed; write a number, text, true"),
        ("csv: data", "csv: ''", "line 4: data.csv: the path is empty"),
        ("csv: data", "<<: {parquet: x}\n  csv: data", "line 3: data: write exactly one of"),
    ],
)
def test_each_mistake_has_its_line_its_value_and_what_is_allowed(write, old, new, message):
    assert old in GOOD
    assert problem(write(GOOD.replace(old, new))).startswith(message)


def test_several_mistakes_are_told_at_once(write):
    lines = problem(write(GOOD.replace("epochs: 3", "epochs: x").replace("push: {}", "psh: {}"))).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["line 10", "line 16"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-1_000", -1000),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.5e3", 1500.0),
        ("1E+3", 1000.0),
        # Octal numbers, and those of base 60, are of YAML 1.1.
        ("0123", "0123"),
        ("1:30.5", "1:30.5"),
        ("2024-01-31", "2024-01-31"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_numbers_are_those_of_yaml_1_2(write, text, value):
    (read,) = loader.load(write(GOOD.replace("rate: 0.1", f"rate: {text}"))).trainer.hparams.values()
    assert (read, type(read)) == (value, type(value))
    assert loader.parse_parameters([f"rate={text}"]) == {"rate": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a pipeline is a mapping with the keys name, module"),
        ("- 1\n", "a pipeline is a mapping"),
        ("a: [1\n", "line 2: not valid YAML: "),
        (f"{GOOD}---\n{GOOD}", "line 17: not valid YAML: expected a single document"),
        ("name: mine\nmodule: a\0b\n", "not valid YAML: unacceptable character #x0000"),
        ("name: mine\na: !own x\n", "line 2: not valid YAML: could not determine a constructor for the tag '!own'"),
        ("name: {1: 2}\n", "line 1: a key is not a string; write it in quotes"),
        (GOOD.replace("mine", "a" * 100_000), "... (100,002 characters) is not allowed"),
    ],
)
def test_what_is_no_pipeline(write, text, message):
    assert message in (shown := problem(write(text)))
    assert len(shown) < 3000, "a message, not what was given"


def test_what_is_no_text_file(tmp_path):
    assert "nothing.yaml: No such file" in problem(tmp_path / "nothing.yaml")
    assert f"{tmp_path}: Is a directory" in problem(tmp_path)
    (tmp_path / "wide.yaml").write_bytes(GOOD.encode("utf-16"))
    assert "wide.yaml: not a text file in UTF-8 (invalid start byte at byte 0)" in problem(tmp_path / "wide.yaml")


def test_nothing_in_the_file_is_evaluated(write, tmp_path):
    text = f"name: !!python/object/apply:os.system ['touch {tmp_path}/evil']\n"
    assert "not valid YAML" in problem(write(text))
    assert not (tmp_path / "evil").exists()


def test_parameters_are_given_anew(write):
    spec = loader.load(write(GOOD))
    parameters = loader.parse_parameters(["strategy=multi_worker_mirrored", "num_workers=2", "train_steps=7", "rate=1e-2"])
    changed = loader.override(spec, parameters).trainer
    assert (changed.parameters.strategy, changed.parameters.num_workers) == ("multi_worker_mirrored", 2)
    assert (changed.parameters.train_steps, changed.parameters.epochs) == (7, 0), "one replaces the other"
    assert changed.hparams == {"rate": 0.01}
    assert spec.trainer.parameters.strategy == "mirrored", "the first is as it was"


def test_number_of_shards_is_a_parameter(write):
    spec = loader.load(write(GOOD + "shards: {num_shards: 8, seed: 5}\n"))
    for words, num_shards in (([], 8), (["num_shards=4"], 4), (["num_shards=auto"], 0)):
        changed = loader.override(spec, loader.parse_parameters(words))
        assert (changed.shards.num_shards, changed.shards.seed) == (num_shards, 5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["num_shards=-1"], "-p num_shards=-1: num_shards: -1 is not allowed: input should be greater than or equal to 0"),
        (["num_workers=0"], "-p num_workers=0: num_workers: 0 is not allowed: input should be greater than or equal to 1"),
        (["stategy=x"], "-p stategy=x: unknown key 'stategy'; did you mean 'strategy'? allowed: strategy,"),
        (["rat=1"], "-p rat=1: unknown key 'rat'; did you mean 'rate'?"),
        (["num_workers=2"], "-p num_workers=2: num_workers: strategy 'mirrored' trains in one process"),
        (["num_workers=yes"], "-p num_workers=True: num_workers: True is not allowed: input should be a valid integer"),
        (["rate=fast"], "-p rate=fast: rate is 0.1 in the pipeline file; write a value of type float"),
        (["rate"], "-p rate: write -p name=value"),
        (["rate=[1]"], "-p rate=[1]: rate is 0.1 in the pipeline file; write a value of type float"),
        (["num_workers=null"], "-p num_workers=null: num_workers: 'null' is not allowed: input should be a valid integer"),
        (["a" * 100_000 + "=2"], f"-p {'a' * 200}... (100,002 characters): unknown key"),
    ],
)
def test_wrong_parameters_are_told_as_they_were_given(write, words, message):
    spec = loader.load(write(GOOD))
    with pytest.raises(ConfigurationError) as error:
        loader.override(spec, loader.parse_parameters(words))
    assert str(error.value).startswith(message)
    assert len(str(error.value)) < 3000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-13-45", "2024-13-45"),
        ("", ""),
        ("a #b", "a #b"),
        ("# b", "# b"),
        ("one\ntwo", "one\ntwo"),
        ("'1e5'", "1e5"),
        ("größe", "größe"),
        ("*.csv", "*.csv"),
        ("a=b", "a=b"),
        ("1: 2.5", "1: 2.5"),
        ("{0: 1, 1: 2}", "{0: 1, 1: 2}"),
        ("[1]", "[1]"),
    ],
)
def test_text_arrives_as_it_was_written(text, value):
    assert loader.parse_parameters(["text=x", f"text={text}"]) == {"text": value}, "the last counts"
