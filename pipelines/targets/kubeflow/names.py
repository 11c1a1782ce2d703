"""Defines the types of values that Kubernetes checks, to find mistakes before it does.

Sources: https://kubernetes.io/docs/concepts/overview/working-with-objects/names and
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels.
"""

from typing import Annotated

from pydantic import Field

_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = rf"{_PART}(\.{_PART})*"
_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

Name = Annotated[str, Field(pattern=f"^{_NAME}$", max_length=253)]
Namespace = Annotated[str, Field(pattern=f"^{_PART}$", max_length=63)]
# The name of an object that is the value of a label, too.
QueueName = Annotated[str, Field(pattern=f"^{_NAME}$", max_length=63)]
Key = Annotated[str, Field(pattern=f"^({_NAME}/)?{_LABEL}$")]
LabelValue = Annotated[str, Field(pattern=f"^({_LABEL})?$")]
Variable = Annotated[str, Field(pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
SecretKey = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$")]
Path = Annotated[str, Field(pattern=r"^/[^/:][^:]*$")]
