"""Defines the types of values that Kubernetes checks, to find mistakes before it does.

Sources: https://kubernetes.io/docs/concepts/overview/working-with-objects/names,
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels and
https://github.com/distribution/reference.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from tfx_distribute.components.launchers.kubernetes.jobset import PORT

# Labels by which controllers find the pods of a job.
_RESERVED = ("training.kubeflow.org/", "jobset.sigs.k8s.io/", "batch.kubernetes.io/")

_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = rf"^{_PART}(\.{_PART})*$"
_NAMESPACE = rf"^{_PART}$"
_LABEL_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = rf"^({_PART}(\.{_PART})*/)?{_LABEL_NAME}$"
_LABEL_VALUE = rf"^({_LABEL_NAME})?$"
_VARIABLE = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"
_ENTRY = r"^[-._a-zA-Z0-9]+$"
_PATH = r"^/[^/:][^:]*$"
_REGISTRY = r"(([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|localhost)(:[0-9]+)?|[A-Za-z0-9-]+:[0-9]+)/"
_REPOSITORY = r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_IMAGE = rf"^({_REGISTRY})?{_REPOSITORY}(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?$"


def _matching(pattern: str, advice: str, max_length: int = 253) -> AfterValidator:
    """Returns a validator that refuses other texts with advice on what to write."""

    def check(text: str) -> str:
        if len(text) > max_length or not re.fullmatch(pattern, text):
            raise PydanticCustomError("kubernetes_text", "write {advice}", {"advice": advice})
        return text

    return AfterValidator(check)


def _check_label(key: str) -> str:
    if key.startswith(_RESERVED):
        raise PydanticCustomError("kubernetes_text", "the controller of the training sets it; leave it out")
    return key


def _check_port(port: int | None) -> int | None:
    if port == PORT:
        raise PydanticCustomError("kubernetes_port", "the processes of a training listen there; write another port")
    return port


_KEY_ADVICE = "a key such as team or example.com/team, with at most 63 letters, digits, '-', '_' and '.' after its domain"
_NAME_ADVICE = "lower-case letters, digits, '-' and '.', with a letter or digit at both ends"

Name = Annotated[str, _matching(_NAME, _NAME_ADVICE), WithJsonSchema({"type": "string", "pattern": _NAME})]
Namespace = Annotated[
    str,
    _matching(_NAMESPACE, "at most 63 lower-case letters, digits and '-', with a letter or digit at both ends", 63),
    WithJsonSchema({"type": "string", "pattern": _NAMESPACE}),
]
# The name of an object that is the value of a label, too.
QueueName = Annotated[
    str, _matching(_NAME, f"at most 63 {_NAME_ADVICE}", 63), WithJsonSchema({"type": "string", "pattern": _NAME})
]
Key = Annotated[str, _matching(_KEY, _KEY_ADVICE, 317), WithJsonSchema({"type": "string", "pattern": _KEY})]
LabelKey = Annotated[Key, AfterValidator(_check_label)]
LabelValue = Annotated[
    str,
    _matching(_LABEL_VALUE, "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", 63),
    WithJsonSchema({"type": "string", "pattern": _LABEL_VALUE}),
]
Variable = Annotated[
    str,
    _matching(_VARIABLE, "letters, digits, '-', '_' and '.', without a digit at the beginning"),
    WithJsonSchema({"type": "string", "pattern": _VARIABLE}),
]
SecretKey = Annotated[
    str,
    _matching(_ENTRY, "letters, digits, '-', '_' and '.'"),
    WithJsonSchema({"type": "string", "pattern": _ENTRY}),
]
Path = Annotated[
    str, _matching(_PATH, "a path such as /data, without ':'", 4096), WithJsonSchema({"type": "string", "pattern": _PATH})
]
Image = Annotated[
    str,
    _matching(_IMAGE, "an image such as registry.example.com/team/digits:1, whose name has no capitals and spaces", 4096),
    WithJsonSchema({"type": "string", "pattern": _IMAGE}),
]
Port = Annotated[int | None, AfterValidator(_check_port)]
