"""Spares Beam work that it would repeat for the same result.

While a pipeline is built and run, Beam asks for the same options hundreds of times, and
builds and runs a parser of command lines each time. It also inspects the parameters of
the same methods again and again. In a pipeline of small data, this takes more time than
the data do (`PipelineOptions.view_as` and `userstate.get_dofn_specs` of
https://github.com/apache/beam/tree/v2.74.0/sdks/python).

This changes private parts of Beam, so it does so for the versions only that it was
compared with. It can go once Beam remembers these results itself: docs/upstream.md.
"""

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core

VERSIONS = ("2.74.",)

Arguments = tuple[list[str], list[Any]]


def install() -> None:
    """Makes Beam remember views of options, and parameters of methods, in this process.

    Does nothing if it has been called before, or with a version of Beam that is not
    one of `VERSIONS`.
    """
    if not beam.__version__.startswith(VERSIONS) or hasattr(PipelineOptions.view_as, "__wrapped__"):
        return
    PipelineOptions.view_as = _remember_views(PipelineOptions.view_as)
    core.get_function_args_defaults = _remember_arguments(core.get_function_args_defaults)


def _remember_views(view_as: Callable[..., Any]) -> Callable[..., Any]:
    views: weakref.WeakKeyDictionary[PipelineOptions, dict[type, PipelineOptions]] = weakref.WeakKeyDictionary()

    @functools.wraps(view_as)
    def remembering(self: PipelineOptions, cls: type[PipelineOptions]) -> PipelineOptions:
        known = views.setdefault(self, {})
        view = known.get(cls)
        # All views share the values, so that a view that was made before has those that
        # were set since.
        if view is None or view._all_options is not self._all_options or view._flags is not self._flags:
            view = known[cls] = view_as(self, cls)
        return view

    return remembering


def _remember_arguments(get_arguments: Callable[..., Arguments]) -> Callable[..., Arguments]:
    known: weakref.WeakKeyDictionary[types.FunctionType, dict[bool, Arguments]] = weakref.WeakKeyDictionary()

    @functools.wraps(get_arguments)
    def remembering(function: Callable[..., Any]) -> Arguments:
        is_method = isinstance(function, types.MethodType)
        defined = function.__func__ if isinstance(function, types.MethodType) else function
        # A wrapper's parameters are those of what it wraps, which may change.
        if type(defined) is not types.FunctionType or vars(defined):
            return get_arguments(function)
        of_function = known.setdefault(defined, {})
        if is_method not in of_function:
            of_function[is_method] = get_arguments(function)
        names, defaults = of_function[is_method]
        return list(names), list(defaults)

    return remembering
