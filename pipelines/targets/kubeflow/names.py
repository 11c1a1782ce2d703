"""Defines the types of values that Kubernetes checks, to find mistakes before it does.

Sources: https://kubernetes.io/docs/concepts/overview/working-with-objects/names and
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels.
"""

from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from tfx_distribute.components.launchers.kubernetes.jobset import PORT
from tfx_distribute.pipelines.targets.texts import Matching

# Labels by which controllers find the pods of a job.
_RESERVED = ("training.kubeflow.org/", "jobset.sigs.k8s.io/", "batch.kubernetes.io/")

_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = rf"^{_PART}(\.{_PART})*$"
_LABEL_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_NAME_ADVICE = "lower-case letters, digits, '-' and '.', with a letter or digit at both ends"


def _check_label(key: str) -> str:
    if key.startswith(_RESERVED):
        raise PydanticCustomError("label", "the controller of the training sets it; leave it out")
    return key


def _check_port(port: int | None) -> int | None:
    if port == PORT:
        raise PydanticCustomError("port", "the processes of a training listen there; write another port")
    return port


Name = Annotated[str, Matching(_NAME, _NAME_ADVICE)]
Namespace = Annotated[
    str, Matching(rf"^{_PART}$", "at most 63 lower-case letters, digits and '-', with a letter or digit at both ends", 63)
]
# The name of an object that is the value of a label, too.
QueueName = Annotated[str, Matching(_NAME, f"at most 63 {_NAME_ADVICE}", 63)]
Key = Annotated[
    str,
    Matching(
        rf"^({_PART}(\.{_PART})*/)?{_LABEL_NAME}$",
        "a key such as team or example.com/team, with at most 63 letters, digits, '-', '_' and '.' after its domain",
        317,
    ),
]
LabelKey = Annotated[Key, AfterValidator(_check_label)]
LabelValue = Annotated[
    str,
    Matching(
        rf"^({_LABEL_NAME})?$",
        "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        63,
    ),
]
Variable = Annotated[
    str, Matching(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$", "letters, digits, '-', '_' and '.', without a digit at the beginning")
]
SecretKey = Annotated[str, Matching(r"^[-._a-zA-Z0-9]+$", "letters, digits, '-', '_' and '.'")]
Path = Annotated[str, Matching(r"^/[^/:][^:]*$", "a path such as /data, without ':'", 4096)]
Port = Annotated[int | None, AfterValidator(_check_port)]
