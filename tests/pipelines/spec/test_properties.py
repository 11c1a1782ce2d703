"""Tests properties of the loader on generated texts and values."""

import contextlib
import json
import re
import time

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tfx_distribute.pipelines.spec import loader, yaml_text
from tfx_distribute.pipelines.spec.pipeline import BASE_DIR, PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError

SECONDS = 10.0  # processor time limit for one text

PIPELINE = """\
name: mine
module: model.py
data: {csv: data, splits: {train: 2, eval: 1}}
transform: {}
trainer:
  label: y
  parameters: {epochs: 1, strategy: mirrored}
  hparams: {rate: 1e-3, text: abc}
evaluate: {metrics: {AUC: {lower_bound: 0.5}}}
"""
WORDS = [
    *"[]{}:,-?&*!|>'\"%@`#~<= \n\t",
    "<<",
    "---",
    "...",
    "&a",
    "*a",
    "!!int",
    "!!set",
    "null",
    "0x_",
    "\\UFFFFFFFF",
    "\0",
    "\ufeff",
]

# Random text fails early. Text made of YAML's own signs gets further into the parser, a
# pipeline file with a part replaced furthest.
yaml_like = st.lists(st.sampled_from([*WORDS, *re.findall(r"\w+", PIPELINE)]), max_size=60).map("".join)
mutated = st.builds(
    lambda start, length, new: PIPELINE[:start] + new + PIPELINE[start + length :],
    st.integers(0, len(PIPELINE)),
    st.integers(0, 30),
    yaml_like,
)
many = settings(max_examples=100, database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def problems(text: str, path) -> list[str]:
    """Returns the lines of the loader's error message; none if there is no error."""
    path.write_text(text, encoding="utf-8", newline="")
    start = time.process_time()
    try:
        loader.load(path)
    except ConfigurationError as error:
        return str(error).splitlines()
    finally:
        assert time.process_time() - start < SECONDS
    return []


@pytest.mark.parametrize("texts", [st.text(), yaml_like, mutated], ids=["any", "signs", "mutated"])
def test_any_text_is_a_pipeline_or_a_configuration_error(tmp_path, texts):
    path = tmp_path / "pipeline.yaml"

    @many
    @given(texts.filter(lambda text: not re.search("[\ud800-\udfff]", text)))
    def holds(text):
        count = len(re.split("\r\n|[\n\r\x85\u2028\u2029]", text))  # YAML's line breaks
        for line in re.findall(r"^.*pipeline\.yaml, line (\d+): ", "\n".join(problems(text, path)), re.MULTILINE):
            assert 1 <= int(line) <= count

    holds()


@many
@given(st.binary(max_size=200))
def test_any_bytes_are_a_configuration_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError):
        loader.load(path)


names = st.from_regex(r"[a-z_]{1,10}", fullmatch=True)
# PyYAML writes some line breaks and control characters in a way that it cannot read.
text_values = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\ufeff"), max_size=50)
scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), text_values
)


@many
@given(names, scalars)
@example("a", 1e-05)
@example("a", 1e22)
@example("a", "1e5")
@example("a", "")
def test_values_survive_the_command_line(name, value):
    """Numbers are written as they are, text in quotes."""
    if isinstance(value, str):
        word = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=1_000).strip()
    else:
        word = json.dumps(value)
    assert loader.parse_parameters([f"{name}={word}"]) == {name: value}


@many
@given(st.lists(st.text(max_size=40), max_size=4))
def test_any_word_is_a_parameter_or_a_configuration_error(words):
    with contextlib.suppress(ConfigurationError):
        assert set(loader.parse_parameters(words)) == {word.partition("=")[0] for word in words}


json_values = st.recursive(
    st.one_of(st.none(), scalars),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(text_values, inner, max_size=4)),
    max_leaves=20,
)


class Dumper(yaml.SafeDumper):
    """Quotes text that would be a number in YAML 1.2, the version that is read."""

    yaml_implicit_resolvers = yaml_text._Loader.yaml_implicit_resolvers


@many
@given(json_values)
def test_values_survive_yaml(value):
    assert yaml_text.parse(yaml.dump(value, Dumper=Dumper, allow_unicode=True)).value == value


@many
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "strategy": st.sampled_from(["default", "one_device", "mirrored", "central_storage"]),
            "per_replica_batch_size": st.integers(1, 2**63 - 1),
            "seed": st.integers(0, 2**32 - 1),
            "cycle_length": st.integers(1, 2**63 - 1),
            "drop_remainder": st.booleans(),
        },
    ),
    st.dictionaries(names.map(lambda name: f"my_{name}"), scalars, max_size=5),
)
def test_pipeline_survives_writing_and_reading(tmp_path_factory, parameters, hparams):
    folder = tmp_path_factory.getbasetemp()
    document = yaml.safe_load(PIPELINE)
    document["trainer"] = {"label": "y", "parameters": {"epochs": 1, **parameters}, "hparams": hparams}
    spec = PipelineSpec.model_validate(document, context={BASE_DIR: folder})
    path = folder / "written.yaml"
    path.write_text(yaml.safe_dump(spec.model_dump(exclude_unset=True), allow_unicode=True), encoding="utf-8", newline="")
    assert loader.load(path) == spec
