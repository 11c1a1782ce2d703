"""Compares what Beam remembers with what it would find out again."""

import bz2
import functools
import gc
import inspect
import random
import sys
import types
import weakref

import apache_beam as beam
import pytest
import tensorflow_data_validation  # noqa: F401 (has DoFns)
from apache_beam.internal import cloudpickle_pickler
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.options.pipeline_options import DirectOptions, GoogleCloudOptions, PipelineOptions, StandardOptions
from apache_beam.runners.worker import statecache, statesampler
from apache_beam.transforms import core, userstate
from apache_beam.typehints.typecheck import AbstractDoFnWrapper
from apache_beam.utils import counters
from running import wait_until

from tfx_distribute.components.beam import caches


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Installs the caches for a test."""
    for owner, name in (
        (PipelineOptions, "view_as"),
        (core, "get_function_args_defaults"),
        (statecache, "get_deep_size"),
        (cloudpickle, "_find_imported_submodules"),
        (userstate, "get_dofn_specs"),
    ):
        monkeypatch.setattr(owner, name, inspect.unwrap(getattr(owner, name)))
    monkeypatch.setattr(cloudpickle_pickler, "bz2", bz2)
    monkeypatch.setattr(statesampler.StateSampler.__init__, "__defaults__", (200,))
    caches.install()


def test_a_view_is_made_once():
    options = PipelineOptions(["--project=one"])
    assert options.view_as(GoogleCloudOptions) is options.view_as(GoogleCloudOptions)
    assert options.view_as(GoogleCloudOptions) is not PipelineOptions(["--project=one"]).view_as(GoogleCloudOptions)


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


def test_options_that_compare_by_value_are_asked_each_time():
    class Equal(PipelineOptions):
        def __eq__(self, other):
            return True

        __hash__ = None

    assert Equal(["--project=one"]).view_as(GoogleCloudOptions).project == "one"


def test_views_end_with_their_options():
    options = PipelineOptions([])
    seen = weakref.ref(options.view_as(StandardOptions))
    assert seen() is not None
    del options
    gc.collect()
    assert seen() is None


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


def test_a_function_that_is_changed_in_place():
    def process(element):
        return element

    def changed(element, by=3):
        return element + by

    assert core.get_function_args_defaults(process) == (["element"], [])
    process.__code__, process.__defaults__ = changed.__code__, changed.__defaults__
    assert core.get_function_args_defaults(process) == (["element", "by"], [3])


def test_plain_functions_are_not_inspected(monkeypatch):
    monkeypatch.setattr(inspect, "signature", lambda function: pytest.fail("is inspected"))
    assert core.get_function_args_defaults(undecorated) == (["element", "by"], [1])


def test_state_and_timers_of_a_dofn_are_found():
    class Stateful(beam.DoFn):
        SEEN = userstate.BagStateSpec("seen", beam.coders.VarIntCoder())

        def process(self, element, seen=beam.DoFn.StateParam(SEEN)):  # noqa: B008 (Beam's way)
            seen.add(element)

    class Timed(beam.DoFn):
        END = userstate.TimerSpec("end", beam.TimeDomain.WATERMARK)

        def process(self, element, end=beam.DoFn.TimerParam(END)):  # noqa: B008
            end.set(element)

        @userstate.on_timer(END)
        def ended(self, end=beam.DoFn.TimerParam(END)):  # noqa: B008
            pass

    assert [userstate.is_stateful_dofn(kind()) for kind in (Stateful, Timed)] == [True, True]
    assert userstate.get_dofn_specs(Timed()) == (set(), {Timed.END})
    assert not userstate.is_stateful_dofn(beam.ParDo(lambda element: [element]).fn)


class Counts(beam.DoFn):
    SEEN = userstate.CombiningValueStateSpec("seen", sum)

    def process(self, element, seen=beam.DoFn.StateParam(SEEN)):  # noqa: B008
        seen.add(element)


class Passes(beam.DoFn):
    def process(self, element):
        yield element


class Delegates(Passes):
    """Has the methods of another DoFn, as Beam's wrappers do."""

    def __init__(self, wrapped):
        self._wrapped = wrapped

    def __getattribute__(self, name):
        return getattr(object.__getattribute__(self, "_wrapped"), name)


class MayCount(Counts):
    """Has a function of its own instead of the method, if it is given one."""

    def __init__(self, function=None):
        if function:
            self.process = function


class Forwards(Passes):
    def __init__(self, other):
        self._other = other

    @property
    def start_bundle(self):
        return self._other.process


def with_method_of(other):
    """Returns a DoFn whose own method takes the place of its class's."""
    dofn = Passes()
    dofn.process = other.process
    return dofn


def test_specs_are_those_that_beam_finds():
    original = inspect.unwrap(userstate.get_dofn_specs)
    wrappers = [wrap(dofn()) for wrap in (Delegates, AbstractDoFnWrapper, with_method_of) for dofn in (Passes, Counts)]
    several = [MayCount(len), MayCount(), Forwards(Passes()), Forwards(Counts())]
    functions = [beam.Map(each).fn for each in (lambda element: [element], Passes().process, Counts().process, len)]
    found = 0
    for dofn in (Passes(), Counts(), *wrappers, *several, *functions):
        expected = original(dofn)
        assert userstate.get_dofn_specs(dofn) == userstate.get_dofn_specs(dofn) == expected
        found += expected == ({Counts.SEEN}, set())
    assert found > 3
    for kind in all_dofns():
        # The others need the DoFn or the function that they wrap.
        if kind.__getattribute__ is object.__getattribute__ and not hasattr(kind, "_inspect_process"):
            dofn = object.__new__(kind)
            assert userstate.get_dofn_specs(dofn) == userstate.get_dofn_specs(dofn) == original(dofn)


@pytest.mark.parametrize("make", [Passes, lambda: beam.Map(lambda element: element).fn, lambda: beam.Map(len).fn])
def test_stateless_classes_are_inspected_once(make, monkeypatch):
    dofn, other = make(), make()
    assert userstate.get_dofn_specs(dofn) == (set(), set())
    monkeypatch.setattr(inspect, "getattr_static", lambda *_: pytest.fail("is inspected"))
    monkeypatch.setattr(core, "get_function_arguments", lambda *_: pytest.fail("is inspected"))
    assert userstate.get_dofn_specs(other) == (set(), set())


def test_specs_that_a_caller_changes_stay_as_they_are():
    userstate.get_dofn_specs(Counts())[0].clear()
    assert userstate.get_dofn_specs(Counts()) == ({Counts.SEEN}, set())


@pytest.mark.parametrize("size", [10, caches.REMEMBERED_BYTES, 10 * caches.REMEMBERED_BYTES])
def test_pickles_are_those_that_beam_writes(size, monkeypatch):
    value = {"content": random.Random(0).randbytes(size)}  # noqa: S311
    written = [cloudpickle_pickler.dumps(value) for _ in range(2)]
    monkeypatch.setattr(cloudpickle_pickler, "bz2", bz2)
    assert written == [cloudpickle_pickler.dumps(value)] * 2
    monkeypatch.undo()
    for _ in range(2):
        assert cloudpickle_pickler.loads(written[0]) == value
        assert cloudpickle_pickler.loads(written[0]) is not cloudpickle_pickler.loads(written[0])


def test_only_small_pickles_are_kept():
    calls = []

    def change(data):
        calls.append(data)
        return data * (10 if data.startswith(b"long") else 1)

    remembering = caches._remember_small(change)
    limit = caches.REMEMBERED_BYTES
    for data, kept in ((b"a", True), (b"a" * limit, True), (b"a" * (limit + 1), False), (b"long" * (limit // 8), False)):
        calls.clear()
        assert remembering(data) == remembering(data) == change(data)
        assert len(calls) == (2 if kept else 3)
    for number in range(3 * caches.REMEMBERED_PICKLES):
        remembering(b"%d" % number)
    calls.clear()
    remembering(b"0")
    assert calls == [b"0"], "old ones are forgotten"


def test_time_of_a_bundle_is_measured_often():
    """The end of a bundle waits for the next measurement."""
    parameter = inspect.signature(inspect.unwrap(statesampler.StateSampler)).parameters["sampling_period_ms"]
    assert parameter.default == caches.SAMPLING_MILLISECONDS < statesampler.DEFAULT_SAMPLING_PERIOD_MS
    sampler = statesampler.StateSampler("bundle", counters.CounterFactory())
    assert sampler.sampling_period_ms == caches.SAMPLING_MILLISECONDS
    sampler.start()
    with sampler.scoped_state("step", "process"):
        wait_until(lambda: sum(state.nsecs for state in sampler._states_by_name.values()))
    sampler.stop()


def test_other_versions_of_beam_stay_as_they_are(monkeypatch):
    originals = [inspect.unwrap(PipelineOptions.view_as), inspect.unwrap(core.get_function_args_defaults)]
    monkeypatch.setattr(PipelineOptions, "view_as", originals[0])
    monkeypatch.setattr(core, "get_function_args_defaults", originals[1])
    monkeypatch.setattr(beam, "__version__", "3.0.0")
    caches.install()
    assert [PipelineOptions.view_as, core.get_function_args_defaults] == originals


def test_beam_of_this_project_is_one_that_was_compared():
    assert beam.__version__.startswith(caches.VERSIONS)


class Holder:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("objects", [(None,), ({"a": [1.5, "text"]},), (Holder(Holder([])), b"bytes"), (sys.modules,)])
def test_sizes_are_those_that_beam_finds(objects):
    original = inspect.unwrap(statecache.get_deep_size)
    for _ in range(2):
        assert statecache.get_deep_size(*objects) == original(*objects)


def test_globals_of_a_module_do_not_count(monkeypatch):
    size = statecache.get_deep_size(Holder({}))
    for _ in range(2):  # the second takes the place of the first
        module = types.ModuleType("of_a_test")
        module.content = list(range(1000, 2000))
        assert statecache.get_deep_size(Holder(vars(module))) > size + 1000
        monkeypatch.setitem(sys.modules, module.__name__, module)
        assert statecache.get_deep_size(Holder(vars(module))) < size
        assert statecache.get_deep_size(Holder(vars(module))) == inspect.unwrap(statecache.get_deep_size)(
            Holder(vars(module))
        )


def code_of(kind):
    """Returns the code of all functions of a class, with the modules that each uses."""
    for _, function in inspect.getmembers(kind, inspect.isfunction):
        used = [function.__globals__.get(name) for name in function.__code__.co_names]
        yield function.__code__, [each for each in used if isinstance(each, types.ModuleType)]


def test_submodules_are_those_that_beam_finds():
    original = inspect.unwrap(cloudpickle._find_imported_submodules)
    found = 0
    for kind in all_dofns():
        for code, modules in code_of(kind):
            used = [*modules, None, "text", beam]
            submodules = original(code, used)
            assert cloudpickle._find_imported_submodules(code, used) == submodules
            found += len(submodules)
    assert found > 50


def test_submodules_that_are_imported_later_are_found(monkeypatch):
    def uses(package):
        return package.later

    package, submodule = types.ModuleType("of_a_test"), types.ModuleType("of_a_test.later")
    package.__package__ = "of_a_test"
    monkeypatch.setitem(sys.modules, package.__name__, package)
    assert cloudpickle._find_imported_submodules(uses.__code__, [package]) == []
    monkeypatch.setitem(sys.modules, submodule.__name__, submodule)
    assert cloudpickle._find_imported_submodules(uses.__code__, [package]) == [submodule]
    monkeypatch.delitem(sys.modules, submodule.__name__)
    assert cloudpickle._find_imported_submodules(uses.__code__, [package]) == []
    monkeypatch.setitem(sys.modules, None, None)  # as older versions of pytest do
    assert cloudpickle._find_imported_submodules(uses.__code__, [package, types.ModuleType("alone")]) == []
