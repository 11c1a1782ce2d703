"""Decides which process loads libtpu, the driver of TPUs, and how. No TensorFlow here.

A TensorFlow that is built for TPUs loads libtpu while it is imported, and one process
at a time can have it. A training process under the strategy `tpu` is started as a new
process, and calls `configure`; every other process on its machine, which may import
TensorFlow earlier, has the variables of `NOT_LOADED`.

Source: xla/stream_executor/tpu/tpu_library_loader.cc and tpu_initialize_util.cc of
TensorFlow (`TryAcquireTpuLock`).
"""

import importlib.util
from collections.abc import MutableMapping
from pathlib import Path

NOT_LOADED = {"TPU_LOAD_LIBRARY": "0"}
"""Environment variables with which TensorFlow does not load libtpu when it is
imported."""

GOOGLE_IMAGES_LIBRARY = Path("/lib/libtpu.so")
PCI_DEVICES = Path("/sys/bus/pci/devices")
_GOOGLE = "0x1ae0"
# Source: jax/_src/hardware_utils.py of https://github.com/jax-ml/jax
_PJRT_CHIPS = {"0x0062": "v5p", "0x0063": "v5e"}


def configure(environment: MutableMapping[str, str], pci_devices: Path = PCI_DEVICES) -> None:
    """Has this process load libtpu when it imports TensorFlow, if it is installed.

    TensorFlow trains on a TPU v5e or v5p only through the runtime PJRT, which older
    TPUs do not have. Variables of `environment` that choose a runtime or a library
    already are kept. Source:
    https://cloud.google.com/vertex-ai/docs/training/training-with-tpu-vm
    """
    for name in NOT_LOADED:
        environment.pop(name, None)
    library = environment.get("TPU_LIBRARY_PATH") or _find_library()
    if library and _needs_pjrt(pci_devices):
        environment.setdefault("NEXT_PLUGGABLE_DEVICE_USE_C_API", "true")
        environment.setdefault("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", library)


def _find_library() -> str:
    package = importlib.util.find_spec("libtpu")
    folders = list(package.submodule_search_locations or ()) if package else []
    candidates = [*(Path(folder) / "libtpu.so" for folder in folders), GOOGLE_IMAGES_LIBRARY]
    return next((str(path) for path in candidates if path.is_file()), "")


def _needs_pjrt(pci_devices: Path) -> bool:
    devices = [vendor.parent for vendor in pci_devices.glob("*/vendor") if vendor.read_text().strip() == _GOOGLE]
    return any((device / "device").read_text().strip() in _PJRT_CHIPS for device in devices)
