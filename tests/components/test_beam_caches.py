"""Compares what Beam remembers with what it would find out again."""

import inspect
import types

import apache_beam as beam
import pytest
import tensorflow_data_validation  # noqa: F401 (has DoFns)
from apache_beam.options.pipeline_options import DirectOptions, GoogleCloudOptions, PipelineOptions, StandardOptions
from apache_beam.transforms import core, userstate

from tfx_distribute.components import beam_caches


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Installs the caches for a test."""
    for owner, name in ((PipelineOptions, "view_as"), (core, "get_function_args_defaults")):
        monkeypatch.setattr(owner, name, inspect.unwrap(getattr(owner, name)))
    beam_caches.install()


def test_values_of_views_are_those_of_all_views():
    options = PipelineOptions(["--direct_num_workers=3", "--project=one"])
    view = options.view_as(DirectOptions)
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


def test_a_callers_changes_are_its_own():
    def process(element, by=1):
        return element + by

    core.get_function_args_defaults(process)[0].clear()
    assert core.get_function_args_defaults(process) == (["element", "by"], [1])


def test_functions_of_the_same_code_differ():
    def make(by):
        def process(element, by=by):
            return element + by

        return process

    assert [core.get_function_args_defaults(make(by))[1] for by in (1, 2)] == [[1], [2]]


def test_state_and_timers_of_a_dofn_are_found():
    class Stateful(beam.DoFn):
        SEEN = userstate.BagStateSpec("seen", beam.coders.VarIntCoder())

        def process(self, element, seen=beam.DoFn.StateParam(SEEN)):  # noqa: B008 (Beam's way)
            seen.add(element)

    assert [userstate.is_stateful_dofn(Stateful()) for _ in range(2)] == [True, True]
    assert not userstate.is_stateful_dofn(beam.ParDo(lambda element: [element]).fn)


def test_other_versions_of_beam_stay_as_they_are(monkeypatch):
    originals = [inspect.unwrap(PipelineOptions.view_as), inspect.unwrap(core.get_function_args_defaults)]
    monkeypatch.setattr(PipelineOptions, "view_as", originals[0])
    monkeypatch.setattr(core, "get_function_args_defaults", originals[1])
    monkeypatch.setattr(beam, "__version__", "3.0.0")
    beam_caches.install()
    assert [PipelineOptions.view_as, core.get_function_args_defaults] == originals


def test_beam_of_this_project_is_one_that_was_compared():
    assert beam.__version__.startswith(beam_caches.VERSIONS)
