"""Pairs the weights of a base model with those of the model. Pure functions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfx_distribute.trainer_module.job import layer_patterns
from tfx_distribute.trainer_module.state.base_model.names import KINDS, Names, renumber
from tfx_distribute.trainer_module.state.base_model.sources import SourceWeight
from tfx_distribute.trainer_module.state.base_model.target_weights import TargetWeight

_MAX_LISTED = 30


@dataclass(frozen=True)
class Matches:
    """The weights of a base model and of the model, in pairs and alone.

    Attributes:
      pairs: Weights that correspond; their shapes may differ.
      unmatched_targets: Weights of the model that the base model does not have.
      unmatched_sources: Weights of the base model that the model does not have.
    """

    pairs: tuple[tuple[TargetWeight, SourceWeight], ...]
    unmatched_targets: tuple[TargetWeight, ...]
    unmatched_sources: tuple[SourceWeight, ...]

    def num_equal(self) -> int:
        """Returns the number of pairs of the same shape."""
        return sum(target.shape == source.shape for target, source in self.pairs)

    def without_adapted(self) -> "Matches":
        """Returns the matches without the state of lookup and discretization layers."""
        return Matches(
            tuple(pair for pair in self.pairs if not pair[0].is_adapted),
            tuple(target for target in self.unmatched_targets if not target.is_adapted),
            self.unmatched_sources,
        )


def match(
    sources: Sequence[SourceWeight],
    targets: Sequence[TargetWeight],
    structure: Mapping[int, str],
    mapping: Sequence[tuple[layer_patterns.Pattern, str]],
    bases: set[str],
    root: str,
) -> Matches:
    """Pairs weights by their names.

    Where several weights have the same name, their positions among the objects of the
    model decide. If automatic names, such as `dense_3`, count from other numbers, they
    are renumbered; that counts if more weights correspond then.

    Args:
      sources: Weights of the base model.
      targets: Weights of the model.
      structure: Index of a target -> key of the source at the same position.
      mapping: New names for parts of sources' names.
      bases: Names that Keras would give the layers of the model, without numbers.
      root: Name of the model.
    """
    source_names = [source.names.map(lambda name: layer_patterns.rename(mapping, name)) for source in sources]
    target_names = [target.names for target in targets]
    exact = _match(source_names, target_names, sources, targets, structure)
    renumbered = _match(
        _renumber(source_names, bases, root), _renumber(target_names, bases, root), sources, targets, structure
    )
    return max(exact, renumbered, key=Matches.num_equal)  # the first, if both match as many


def _match(
    source_names: Sequence[Names],
    target_names: Sequence[Names],
    sources: Sequence[SourceWeight],
    targets: Sequence[TargetWeight],
    structure: Mapping[int, str],
) -> Matches:
    found: dict[int, int] = {}  # target -> source
    taken: set[int] = set()
    for kind in KINDS:
        by_name: dict[str, tuple[list[int], list[int]]] = {}
        for index, names in enumerate(target_names):
            if index not in found and getattr(names, kind) is not None:
                by_name.setdefault(getattr(names, kind), ([], []))[0].append(index)
        for index, names in enumerate(source_names):
            if index not in taken and getattr(names, kind) in by_name:
                by_name[getattr(names, kind)][1].append(index)
        for target_indices, source_indices in by_name.values():
            if len(target_indices) == len(source_indices) == 1:
                pairs = [(target_indices[0], source_indices[0])]
            else:
                keys = {sources[index].key: index for index in source_indices}
                pairs = [(index, keys[structure[index]]) for index in target_indices if structure.get(index) in keys]
            found.update(pairs)
            taken.update(source for _, source in pairs)
    # Weights without names, which only their positions identify.
    position = {source.key: index for index, source in enumerate(sources) if source.names.variable is None}
    for index, key in structure.items():
        if index not in found and key in position and position[key] not in taken:
            found[index] = position[key]
            taken.add(position[key])
    copies = {key for target in found for key in targets[target].copies}
    return Matches(
        tuple((targets[target], sources[source]) for target, source in sorted(found.items())),
        tuple(target for index, target in enumerate(targets) if index not in found),
        tuple(source for index, source in enumerate(sources) if index not in taken and source.key not in copies),
    )


def _renumber(all_names: Sequence[Names], bases: set[str], root: str) -> list[Names]:
    changed = list(all_names)
    for kind in ("path", "variable", "named_key"):
        listed = [name for names in all_names if (name := getattr(names, kind)) is not None]
        renumbered = renumber(listed, bases, root)
        for index, names in enumerate(all_names):
            name = getattr(names, kind)
            if name is not None:
                changed[index] = Names(**{**vars(changed[index]), kind: renumbered[name]})
    return changed


def describe_differences(matches: Matches) -> list[str]:
    """Returns a line for each difference, with the shapes.

    Args:
      matches: The weights in pairs and alone.
    """
    lines = [
        f"{target.path}: {list(source.shape)} in the base model, {list(target.shape)} in the model"
        for target, source in matches.pairs
        if target.shape != source.shape
    ]
    lines += [f"{target.path}: {list(target.shape)} in the model only" for target in matches.unmatched_targets]
    lines += [f"{source.names.path}: {list(source.shape)} in the base model only" for source in matches.unmatched_sources]
    shown = lines[:_MAX_LISTED]
    return [*shown, f"and {len(lines) - len(shown)} more"] if len(lines) > len(shown) else lines


def find_renamed(matches: Matches) -> str | None:
    """Returns a mapping that would explain a difference, such as `old_head = head`.

    It is suggested if one layer of each model is alone, with the same weights.
    """
    target_layers = _group([(target.path, target.shape) for target in matches.unmatched_targets])
    source_layers = _group([(source.names.path, source.shape) for source in matches.unmatched_sources])
    for layer, weights in target_layers.items():
        equal = [name for name, others in source_layers.items() if others == weights]
        if len(equal) == 1:
            return f"{re.escape(equal[0])} = {layer}"
    return None


def _group(weights: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, set[tuple[str, tuple[int, ...]]]]:
    layers: dict[str, set[tuple[str, tuple[int, ...]]]] = {}
    for path, shape in weights:
        layer, _, name = path.rpartition("/")
        layers.setdefault(layer, set()).add((name, shape))
    return {layer: named for layer, named in layers.items() if layer}
