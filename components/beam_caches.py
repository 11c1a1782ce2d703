"""Spares Beam work that it would repeat for the same result.

While a pipeline is built and run, Beam asks for the same options hundreds of times, and
builds and runs a parser of command lines each time. It inspects the parameters of the
same methods again and again, and looks through all modules for each side input and for
each function that it pickles. In a pipeline of small data, this takes more time than
the data do (`PipelineOptions.view_as`, `userstate.get_dofn_specs`,
`statecache.get_deep_size` and `cloudpickle._find_imported_submodules` of
https://github.com/apache/beam/tree/v2.74.0/sdks/python).

This changes private parts of Beam, so it does so for the versions only that it was
compared with. It can go once Beam does it itself: docs/upstream.md.
"""

import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker import statecache
from apache_beam.transforms import core

VERSIONS = ("2.74.", "2.77.")

Arguments = tuple[list[str], list[Any]]


def install() -> None:
    """Makes Beam remember what it would find out again, or read it directly.

    Holds for this process. Does nothing if it has been called before, or with a version
    of Beam that is not one of `VERSIONS`.
    """
    if not beam.__version__.startswith(VERSIONS) or hasattr(PipelineOptions.view_as, "__wrapped__"):
        return
    PipelineOptions.view_as = _remember_views(PipelineOptions.view_as)
    core.get_function_args_defaults = _read_parameters(core.get_function_args_defaults)
    statecache.get_deep_size = _remember_globals(statecache.get_deep_size)
    cloudpickle._find_imported_submodules = _remember_submodules(cloudpickle._find_imported_submodules)


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


def _remember_globals(get_deep_size: Callable[..., int]) -> Callable[..., int]:
    traverse = statecache.objsize.traverse
    modules: list[Any] = []
    kept: list[Any] = []  # some are made when asked for, and their ids must not be used again
    known: set[int] = set()
    settings = traverse.ObjSizeSettings(
        get_size_func=statecache._size_func,
        get_referents_func=statecache._get_referents_func,
        filter_func=statecache._filter_func,
        exclude_modules_globals=False,
    )

    @functools.wraps(get_deep_size)
    def remembering(*objects: Any) -> int:
        nonlocal modules, kept, known
        # Comparing the lists is fast, because equal modules are identical.
        if (imported := list(sys.modules.values())) != modules:
            modules, kept = imported, [vars(module) for module in imported if hasattr(module, "__dict__")]
            known = {id(None), *map(id, kept)}
        context = traverse.TraversalContext(settings)
        context.exclude_set = known
        return context.get_deep_size(*objects)

    return remembering


def _remember_submodules(find: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    names: list[Any] = []
    packages: dict[str, list[tuple[str, set[str]]]] = {}

    def submodules(package: str) -> list[tuple[str, set[str]]]:
        """Returns names below a package, each with the attributes that lead to it."""
        if package not in packages:
            prefix = f"{package}."
            below = (name for name in names if name is not None and name.startswith(prefix))
            packages[package] = [(name, set(name[len(prefix) :].split("."))) for name in below]
        return packages[package]

    @functools.wraps(find)
    def remembering(code: types.CodeType, top_level_dependencies: list[Any]) -> list[Any]:
        nonlocal names
        used = [
            module.__name__
            for module in top_level_dependencies
            if isinstance(module, types.ModuleType) and getattr(module, "__package__", None)
        ]
        if used and (imported := list(sys.modules)) != names:
            names = imported
            packages.clear()
        attributes = set(code.co_names)
        return [sys.modules[name] for package in used for name, path in submodules(package) if path <= attributes]

    return remembering
