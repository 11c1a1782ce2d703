"""Defines the section `resources` of pipeline files: machines of steps and training."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from tfx_distribute.components.spec_model import SpecModel

# Keys of `resources`, besides the names of components.
DEFAULT, TRAINER, PARAMETER_SERVER, TRAINER_STEP = "default", "Trainer", "ParameterServer", "TrainerStep"

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|Ki|[MGTP]i?|)$")
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
}


def number(quantity: str) -> Decimal:
    """Converts a Kubernetes quantity to a number: `500m` is 0.5, `2Gi` is 2147483648.

    Raises a ValueError for anything else. Source:
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    match = _QUANTITY.match(quantity)
    if not match:
        raise ValueError(f"{quantity!r} is not a Kubernetes quantity; use e.g. 4, 500m or 16Gi")
    return Decimal(match[1]) * _FACTORS[match[2]]


def _quantity(value: str) -> str:
    number(value)
    return value


Quantity = Annotated[
    str,
    # YAML reads 4 as a number, where Kubernetes has the text "4".
    BeforeValidator(
        lambda value: str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value,
        json_schema_input_type=str | float,
    ),
    AfterValidator(_quantity),
]


class Toleration(SpecModel):
    """A taint of Kubernetes nodes to tolerate; the fields are Kubernetes's own."""

    key: str = ""
    """Key of the taint; empty for all keys."""
    operator: str = Field("Equal", json_schema_extra={"enum": ["Equal", "Exists"]})
    """`Equal`, or `Exists` for any value."""
    value: str = ""
    """Value of the taint."""
    effect: str = Field("", json_schema_extra={"enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]})
    """Effect of the taint; empty for all effects."""


class MachineSpec(SpecModel):
    """A machine, or the share of one that a step or a training process gets."""

    machine_type: str = ""
    """Machine type of Vertex AI, such as `g2-standard-24`, if training is a CustomJob;
    ignored elsewhere. Default: the usual one with the accelerator, or the smallest
    with CPU and memory."""
    cpu: Quantity | None = None
    """CPU cores, such as `4` or `500m`."""
    memory: Quantity | None = None
    """Memory, such as `16Gi`."""
    accelerator: str | None = None
    """Kind of accelerator, such as `nvidia-l4` or `tpu-v5-lite-podslice`; outside of
    Google's platforms `nvidia.com/gpu`. docs/accelerators.md lists them."""
    accelerator_count: int = Field(0, ge=0)
    """Number of accelerators; 0 for one GPU, or for all chips of a TPU machine."""
    topology: str = ""
    """Topology of a TPU slice, such as `2x4`."""
    spot: bool = False
    """True for a spot machine, which costs less and can be taken away at any time."""
    shared_memory: Quantity | None = None
    """Size of `/dev/shm`, which NCCL uses. Default with accelerators: limited only by
    `memory`."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of Kubernetes nodes to run on, besides those that follow from the other
    fields."""
    tolerations: list[Toleration] = Field(default_factory=list)
    """Taints of Kubernetes nodes to tolerate, besides those that follow from the other
    fields."""


# The Trainer's step while other machines train. It imports TFX (750 MiB, and 8 seconds
# of one CPU), copies files, and then asks now and then how training goes.
SMALL = MachineSpec(cpu="500m", memory="1536Mi")


def keep_set(**values: Any) -> dict[str, Any]:
    """Returns the values that are neither empty nor None."""
    return {name: value for name, value in values.items() if value}


def machine_of(resources: Mapping[str, MachineSpec], name: str) -> MachineSpec:
    """Returns the machine of a component or training role; by default, `default`."""
    return resources.get(name) or resources.get(DEFAULT) or MachineSpec()


def machine_of_waiting_step(resources: Mapping[str, MachineSpec]) -> MachineSpec:
    """Returns the machine of a Trainer's step that waits while other machines train.

    What `TrainerStep` leaves out is small.
    """
    machine = resources.get(TRAINER_STEP, SMALL)
    return machine.model_copy(update={"cpu": machine.cpu or SMALL.cpu, "memory": machine.memory or SMALL.memory})
