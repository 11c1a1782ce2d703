"""Defines what the readers of base models have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tfx_distribute.trainer_module.state.base_model.names import Names


@dataclass(frozen=True)
class SourceWeight:
    """One weight of a base model.

    Attributes:
      names: The weight's names, as far as the file has them.
      key: Key of its value in the file.
      shape: Its shape.
    """

    names: Names
    key: str
    shape: tuple[int, ...]


class Source(Protocol):
    """An open base model, whose values are read one by one."""

    @property
    def weights(self) -> Sequence[SourceWeight]:
        """Returns the weights."""

    def read(self, weight: SourceWeight) -> np.ndarray:
        """Reads the value of a weight."""

    def find_by_structure(self, model: Any) -> Mapping[int, str]:
        """Finds weights by their position among the objects of a model.

        Args:
          model: A built Keras model.

        Returns:
          `id` of each TensorFlow variable that has a counterpart -> key of that weight.
        """

    def close(self) -> None:
        """Closes the files."""
