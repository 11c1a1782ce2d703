"""The machines that a pipeline's steps and training processes get: what a pipeline file says of them."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from tfx_distribute.pipelines.spec.base import SpecModel

DEFAULT, TRAINER, PARAMETER_SERVER = "default", "Trainer", "ParameterServer"  # keys of `resources`, beside components

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|Ki|[MGTP]i?|)$")
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
}


def number(quantity: str) -> Decimal:
    """What a quantity of Kubernetes is: `500m` is 0.5, `2Gi` is 2147483648.

    Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    found = _QUANTITY.match(quantity)
    if not found:
        raise ValueError(f"{quantity!r} is no quantity of Kubernetes; write such as 4, 500m or 16Gi")
    return Decimal(found[1]) * _FACTORS[found[2]]


def _quantity(value: str) -> str:
    number(value)
    return value


Quantity = Annotated[
    str,
    # YAML has 4 where Kubernetes has "4".
    BeforeValidator(lambda value: str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value),
    AfterValidator(_quantity),
]


class Toleration(SpecModel):
    """A taint of nodes that is no hindrance; the fields are Kubernetes's own."""

    key: str = ""
    """Key of the taint; empty for all."""
    operator: str = Field("Equal", json_schema_extra={"enum": ["Equal", "Exists"]})
    """`Exists` for any value."""
    value: str = ""
    """Value of the taint."""
    effect: str = Field("", json_schema_extra={"enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]})
    """Effect of the taint; empty for all."""


class MachineSpec(SpecModel):
    """A machine, or as much of one as a step or a training process gets."""

    machine_type: str = ""
    """Machine type of Vertex AI, such as `g2-standard-24`, where training is a CustomJob; other places go by the rest.
    Default: the smallest with that accelerator, CPU and memory."""
    cpu: Quantity | None = None
    """CPU cores, such as `4` or `500m`."""
    memory: Quantity | None = None
    """Memory, such as `16Gi`."""
    accelerator: str | None = None
    """Kind of accelerator, such as `nvidia-l4` or `tpu-v5-lite-podslice`; docs/accelerators.md lists them."""
    accelerator_count: int = Field(0, ge=0)
    """Accelerators; 0 for one GPU, or for all chips of a TPU machine."""
    topology: str = ""
    """Topology of a TPU slice, such as `2x4`."""
    spot: bool = False
    """Whether a machine will do that can be taken away at any time, and costs less."""
    shared_memory: Quantity | None = None
    """Size of `/dev/shm`, which NCCL uses; with accelerators by default as much of `memory` as is taken."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of Kubernetes's nodes, beside those that follow from the rest."""
    tolerations: list[Toleration] = Field(default_factory=list)
    """Taints of Kubernetes's nodes that do not matter, beside those that follow from the rest."""


SMALL = MachineSpec(cpu="1", memory="4Gi")  # what a step takes that has other machines train, and waits


def machine_of(resources: Mapping[str, MachineSpec], name: str) -> MachineSpec:
    """The machine of a component, or of a kind of training process; as `default` has it, where nothing is said of it."""
    return resources.get(name) or resources.get(DEFAULT) or MachineSpec()
