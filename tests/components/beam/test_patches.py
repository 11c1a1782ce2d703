"""Compares Beam as it is changed with Beam as it is."""

import functools
import inspect
import types

import apache_beam as beam
import numpy as np
import objsize
import pytest
import tensorflow as tf
import tensorflow_data_validation  # noqa: F401 (has DoFns)
import tensorflow_transform as tft
from apache_beam.options.pipeline_options import DirectOptions, GoogleCloudOptions, PipelineOptions, StandardOptions
from apache_beam.runners.worker import statecache, statesampler
from apache_beam.testing.util import assert_that
from apache_beam.transforms import core
from apache_beam.utils import counters
from tensorflow_transform import beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from tfx_distribute.components.beam import patches
from tfx_distribute.components.beam.direct_runner import DirectRunner

# As `statecache` has it before `install`.
measure_as_beam = functools.partial(
    objsize.get_deep_size,
    get_size_func=statecache._size_func,
    get_referents_func=statecache._get_referents_func,
    filter_func=statecache._filter_func,
)


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Installs the patches for a test."""
    for owner, name in ((PipelineOptions, "view_as"), (core, "get_function_args_defaults")):
        monkeypatch.setattr(owner, name, inspect.unwrap(getattr(owner, name)))
    monkeypatch.setattr(statesampler.StateSampler.__init__, "__defaults__", (200,))
    monkeypatch.setattr(statecache, "get_deep_size", measure_as_beam)
    patches.install()


def test_values_of_views_are_those_of_all_views():
    options = PipelineOptions(["--direct_num_workers=3", "--project=one"])
    view = options.view_as(DirectOptions)
    assert view is options.view_as(DirectOptions), "it is made once"
    assert view.direct_num_workers == 3
    view.direct_num_workers = 4
    assert options.view_as(DirectOptions).direct_num_workers == 4
    assert options.view_as(StandardOptions).view_as(DirectOptions).direct_num_workers == 4
    assert options.get_all_options()["direct_num_workers"] == 4
    assert PipelineOptions(["--project=two"]).view_as(GoogleCloudOptions).project == "two"


def test_options_that_get_other_values_have_other_views():
    options = PipelineOptions(["--project=one"])
    assert options.view_as(GoogleCloudOptions).project == "one"
    options._all_options = {"project": "two"}
    assert options.view_as(GoogleCloudOptions).project == "two"


@pytest.mark.parametrize("words", [[], ["--streaming", "--labels=a=b", "--labels=c=d", "--experiments=x"]])
def test_views_are_those_that_beam_makes(words):
    original = inspect.unwrap(PipelineOptions.view_as)
    for kind in PipelineOptions.__subclasses__():
        expected = original(PipelineOptions(words), kind)
        options = PipelineOptions(words)
        for _ in range(2):
            assert str(options.view_as(kind)) == str(expected)


def all_dofns(kind=beam.DoFn):
    for subclass in kind.__subclasses__():
        yield subclass
        yield from all_dofns(subclass)


def test_parameters_are_those_that_beam_finds():
    original = inspect.unwrap(core.get_function_args_defaults)
    kinds = list(all_dofns())
    assert len(kinds) > 50
    compared = 0
    for kind in kinds:
        for _, function in inspect.getmembers(kind, inspect.isfunction):
            for each in (function, types.MethodType(function, object.__new__(kind))):
                assert core.get_function_args_defaults(each) == core.get_function_args_defaults(each) == original(each)
                compared += 1
    assert compared > 500


def undecorated(element, /, by=1, *others, named=2, **rest):
    return element


@functools.wraps(undecorated)
def decorated(*arguments):
    return undecorated(*arguments)


class Methods:
    def without_self(*arguments):
        pass

    def with_defaults(self=1, element=2):
        pass


@pytest.mark.parametrize(
    "function",
    [
        *(undecorated, decorated, functools.partial(undecorated, by=3), str.strip, len, dict, print),
        *(Methods.without_self, Methods().without_self, Methods.with_defaults, Methods().with_defaults),
    ],
)
def test_parameters_of_strange_functions(function):
    assert core.get_function_args_defaults(function) == inspect.unwrap(core.get_function_args_defaults)(function)


def test_time_of_a_bundle_is_measured_often():
    """The end of a bundle waits for the next measurement."""
    parameter = inspect.signature(inspect.unwrap(statesampler.StateSampler)).parameters["sampling_period_ms"]
    assert parameter.default == patches.SAMPLING_MILLISECONDS < statesampler.DEFAULT_SAMPLING_PERIOD_MS
    sampler = statesampler.StateSampler("bundle", counters.CounterFactory())
    assert sampler.sampling_period_ms == patches.SAMPLING_MILLISECONDS


def test_other_versions_of_beam_stay_as_they_are(monkeypatch):
    originals = [inspect.unwrap(PipelineOptions.view_as), inspect.unwrap(core.get_function_args_defaults)]
    monkeypatch.setattr(PipelineOptions, "view_as", originals[0])
    monkeypatch.setattr(core, "get_function_args_defaults", originals[1])
    monkeypatch.setattr(beam, "__version__", "3.0.0")
    patches.install()
    assert [PipelineOptions.view_as, core.get_function_args_defaults] == originals


def test_beam_of_this_project_is_one_that_was_compared():
    assert beam.__version__.startswith(patches.VERSIONS)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"abc",
        {"a": [1.5, "text", (b"x",)]},
        np.zeros((3, 4)),
        [np, patches, int, len, inspect.unwrap, lambda: patches],
        functools.partial(inspect.unwrap, {"a": 1}),
        beam.Create([1]),
        types.SimpleNamespace(of={"a": patches, "b": PipelineOptions(["--project=one"])}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_sizes_are_those_that_beam_measures(value):
    assert statecache.get_deep_size(value) == measure_as_beam(value)


def test_an_analysis_of_an_analysis(tmp_path):
    def preprocessing_fn(inputs):
        cut = tf.minimum(inputs["x"], 2 * tft.mean(inputs["x"]))
        return {"scaled": tft.scale_to_z_score(cut), "word": tft.compute_and_apply_vocabulary(inputs["word"])}

    schema = schema_utils.schema_from_feature_spec(
        {"x": tf.io.FixedLenFeature([], tf.float32), "word": tf.io.FixedLenFeature([], tf.string)}
    )
    rows = [{"x": float(x), "word": "ab"[x % 2]} for x in (1, 2, 3, 4, 30)]
    cut = np.array([1.0, 2.0, 3.0, 4.0, 16.0])

    def check(found):
        assert sorted(row["scaled"] for row in found) == pytest.approx(list((cut - cut.mean()) / cut.std()), abs=1e-6)

    # As TFX's Transform does.
    with beam.Pipeline(DirectRunner()) as pipeline, tft_beam.Context(str(tmp_path), use_deep_copy_optimization=True):
        data = (pipeline | beam.Create(rows), dataset_metadata.DatasetMetadata(schema))
        (transformed, _), _ = data | tft_beam.AnalyzeAndTransformDataset(preprocessing_fn)
        assert_that(transformed, check)
