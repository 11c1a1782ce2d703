"""Spares Beam work that it would repeat for the same result.

While a pipeline is built and run, Beam asks for the same options hundreds of times, and
builds and runs a parser of command lines each time. It inspects the parameters of the
same methods again and again, looks through all modules for each side input and for each
function that it pickles, and compresses the same pickles many times. At the end of
each bundle, it waits until a thread wakes up that measures time. In a pipeline of small
data, this takes more time than the data do (`PipelineOptions.view_as`,
`userstate.get_dofn_specs`, `statecache.get_deep_size`,
`cloudpickle._find_imported_submodules`, `cloudpickle_pickler.dumps` and
`StateSampler.stop` of https://github.com/apache/beam/tree/v2.74.0/sdks/python).

This changes private parts of Beam, so it does so for the versions only that it was
compared with. It can go once Beam does it itself.
"""

import bz2
import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.internal import cloudpickle_pickler
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker import statecache, statesampler
from apache_beam.transforms import core, userstate

VERSIONS = ("2.74.", "2.77.")
# Pickles of functions have a few kilobytes; those of data are not worth the memory.
REMEMBERED_PICKLES, REMEMBERED_BYTES = 1024, 16 << 10
SAMPLING_MILLISECONDS = 2  # Beam: up to 200

Arguments = tuple[list[str], list[Any]]
Specs = tuple[set[Any], set[Any]]


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
    userstate.get_dofn_specs = _remember_specs(userstate.get_dofn_specs)
    cloudpickle_pickler.bz2 = types.SimpleNamespace(
        compress=_remember_small(bz2.compress), decompress=_remember_small(bz2.decompress)
    )
    statesampler.StateSampler.__init__.__defaults__ = (SAMPLING_MILLISECONDS,)


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


def _remember_specs(get_specs: Callable[..., Specs]) -> Callable[..., Specs]:
    stateless: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()

    @functools.wraps(get_specs)
    def remembering(dofn: Any) -> Specs:
        if not _has_methods_of_its_class(dofn):
            return get_specs(dofn)
        kind = type(dofn)
        if stateless.get(kind):
            return set(), set()
        specs = get_specs(dofn)
        if kind not in stateless:
            stateless[kind] = specs == (set(), set()) and not _has_properties(kind)
        return specs

    return remembering


def _has_properties(kind: type) -> bool:
    """Returns True if a class has properties that are not Beam's own."""
    found = ((name, inspect.getattr_static(kind, name)) for name in dir(kind))
    return any(isinstance(each, property) and each is not getattr(beam.DoFn, name, None) for name, each in found)


def _has_methods_of_its_class(dofn: Any) -> bool:
    kind, own = type(dofn), vars(dofn)
    if kind.__getattribute__ is not object.__getattribute__ or hasattr(kind, "__getattr__"):
        return False
    if kind is core.CallableWrapperDoFn:  # its `process` is a user's function, which Beam does not ask for state
        return not isinstance(own.get("process"), types.MethodType)
    return not hasattr(kind, "_inspect_process") and not any(hasattr(kind, name) for name in own)


def _remember_small(function: Callable[..., bytes]) -> Callable[..., bytes]:
    known: dict[tuple[Any, ...], bytes] = {}

    def remembering(data: bytes, **options: int) -> bytes:
        if len(data) > REMEMBERED_BYTES:
            return function(data, **options)
        key = (data, *options.items())
        result = known.get(key)
        if result is None:
            result = function(data, **options)
            if len(result) <= REMEMBERED_BYTES:
                if len(known) >= REMEMBERED_PICKLES:  # several threads may add
                    known.clear()
                known[key] = result
        return result

    return remembering


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
