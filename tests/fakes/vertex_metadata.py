"""Keeps artifacts as the metadata store of Vertex AI does, and answers resolvers.

Understands the filters that TFX compiles its two resolvers to. Source:
`orchestration/kubeflow/v2/step_builder.py` of TFX, and
https://cloud.google.com/vertex-ai/docs/ml-metadata/analyzing
"""

import re
from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]

_TITLE = re.compile(r"^title: (\S+)", re.MULTILINE)
_TERM = re.compile(r'(?P<key>\w+|metadata\.\w+\.number_value)="?(?P<value>[^"]*)"?')
_INPUT = re.compile(r"\{\{\$\.inputs\.artifacts\['(\w+)'\]\.metadata\['(\w+)'\]\}\}")


class ArtifactStore:
    """The artifacts of a project; those of failed tasks are not in it."""

    def __init__(self) -> None:
        self._artifacts: list[Document] = []  # the latest last

    def add(self, artifact: Document) -> None:
        """Adds the output of a task that has succeeded."""
        self._artifacts.append(artifact)

    def resolve(self, resolver: Document, inputs: Mapping[str, Document]) -> dict[str, Document]:
        """Returns what a resolver finds: output -> the latest artifact.

        Outputs for which there is none are missing.

        Args:
          resolver: The ResolverSpec.
          inputs: The resolver's own input artifacts.

        Raises:
          ValueError: A filter is not understood.
        """
        found = {}
        for key, query in resolver["outputArtifactQueries"].items():
            text = query["filter"]
            for name, field in _INPUT.findall(text):
                # A resolver whose own input was not found finds nothing.
                value = inputs.get(name, {}).get("metadata", {}).get(field, "")
                text = text.replace(f"{{{{$.inputs.artifacts['{name}'].metadata['{field}']}}}}", str(value))
            terms = [_TERM.fullmatch(term) for term in text.split(" AND ")]
            if not all(terms):
                raise ValueError(f"the filter {query['filter']} is not understood")
            matching = [one for one in self._artifacts if all(term and _matches(one, term) for term in terms)]
            if matching:
                found[key] = matching[-1]
        return found


def _matches(artifact: Document, term: re.Match[str]) -> bool:
    key, value = term["key"], term["value"]
    if key == "state":
        return value == "LIVE"
    if key == "schema_title":
        kind = artifact["type"]
        return value in (kind.get("schemaTitle"), *_TITLE.findall(kind.get("instanceSchema", "")))
    if key == "name":
        return bool(artifact["name"] == value)
    number = artifact.get("metadata", {}).get(key.split(".")[1])
    return isinstance(number, int | float) and float(number) == float(value)
