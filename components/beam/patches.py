"""Changes private parts of Beam: to save time, and for TFX 1.16.

While a pipeline is built and run, Beam asks for the same options thousands of times,
and builds and runs a parser of command lines each time. It inspects the parameters of
the same methods again and again. At the end of each bundle, it waits until a thread
wakes up that measures time. To measure a value that it caches, it first lists the
global variables of all imported modules, to leave them out; the measurement does not
reach them anyway. (`PipelineOptions.view_as`, `core.get_function_args_defaults`,
`StateSampler.stop` and `statecache.get_deep_size` of
https://github.com/apache/beam/tree/v2.74.0/sdks/python).

On 210,000 taxi trips, the first two took a tenth of the run's processor time; on
15,000, the last one a twentieth. What else Beam repeats (specs of DoFns, compressed
pickles, lists of modules) took less than two hundredths each, and is left as it is.

TFX 1.16's Transform cannot analyze the result of another analysis. TFT then copies a
part of Beam's graph, and passes Beam's constructor the arguments that it took at the
time. Beam has required two more since, with which later versions of TFT call it
(https://github.com/tensorflow/transform/blob/v1.16.0/tensorflow_transform/beam/deep_copy.py).

What saves time holds only for the versions that it was compared with. Each change can
go once Beam or TFT makes it.
"""

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import objsize
from apache_beam import pipeline
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker import statecache, statesampler
from apache_beam.transforms import core

VERSIONS = ("2.74.", "2.77.")
SAMPLING_MILLISECONDS = 2  # Beam: up to 200

Arguments = tuple[list[str], list[Any]]


def install() -> None:
    """Lets TFT 1.16 copy parts of Beam's graph, and has Beam remember what it found.

    Holds for this process. Beam remembers only with one of `VERSIONS`.
    """
    # No environment of its own, and no annotations.
    pipeline.AppliedPTransform.__init__.__defaults__ = (None, None)
    if not beam.__version__.startswith(VERSIONS) or hasattr(PipelineOptions.view_as, "__wrapped__"):
        return
    PipelineOptions.view_as = _remember_views(PipelineOptions.view_as)
    core.get_function_args_defaults = _read_parameters(core.get_function_args_defaults)
    statesampler.StateSampler.__init__.__defaults__ = (SAMPLING_MILLISECONDS,)
    statecache.get_deep_size = functools.partial(
        objsize.get_deep_size,
        get_size_func=statecache._size_func,
        get_referents_func=statecache._get_referents_func,
        filter_func=statecache._filter_func,  # leaves functions, types and modules out
        exclude_modules_globals=False,
    )


def _remember_views(view_as: Callable[..., Any]) -> Callable[..., Any]:
    views: weakref.WeakKeyDictionary[PipelineOptions, dict[type, PipelineOptions]] = weakref.WeakKeyDictionary()

    @functools.wraps(view_as)
    def remembering(self: PipelineOptions, cls: type[PipelineOptions]) -> PipelineOptions:
        if type(self).__hash__ is not object.__hash__:  # equal options may have other values
            return view_as(self, cls)
        known = views.setdefault(self, {})
        view = known.get(cls)
        # All views share the values, so that a view that was made before has those that
        # were set since.
        if view is None or view._all_options is not self._all_options or view._flags is not self._flags:
            view = known[cls] = view_as(self, cls)
        return view

    return remembering


def _read_parameters(get_arguments: Callable[..., Arguments]) -> Callable[..., Arguments]:
    @functools.wraps(get_arguments)
    def reading(function: Callable[..., Any]) -> Arguments:
        is_bound = isinstance(function, types.MethodType)
        defined = function.__func__ if isinstance(function, types.MethodType) else function
        count = defined.__code__.co_argcount if type(defined) is types.FunctionType else 0
        # Attributes may name a wrapped function, or another signature.
        if not count or vars(defined):
            return get_arguments(function)
        names = list(defined.__code__.co_varnames[is_bound:count])
        defaults = list(defined.__defaults__ or ())
        return names, defaults[max(0, len(defaults) - len(names)) :]

    return reading
