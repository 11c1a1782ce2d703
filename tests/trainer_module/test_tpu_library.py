"""Tests the variables for loading libtpu, with stand-ins for chip and library."""

import sys

import pytest

from tfx_distribute.trainer_module import tpu_library


@pytest.fixture
def libtpu(tmp_path, monkeypatch):
    """Returns the path of libtpu as its package installs it."""
    (tmp_path / "libtpu").mkdir()
    (tmp_path / "libtpu" / "__init__.py").touch()
    (tmp_path / "libtpu" / "libtpu.so").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return str(tmp_path / "libtpu" / "libtpu.so")


def make_devices(folder, *chips):
    """Returns a folder like the kernel's, of a network card and chips of Google's."""
    for index, (vendor, device) in enumerate([("0x8086", "0x0063"), *(("0x1ae0", chip) for chip in chips)]):
        (folder / "pci" / str(index)).mkdir(parents=True)
        (folder / "pci" / str(index) / "vendor").write_text(f"{vendor}\n")
        (folder / "pci" / str(index) / "device").write_text(f"{device}\n")
    return folder / "pci"


@pytest.mark.parametrize(
    ("chips", "has_pjrt"),
    [((), False), (("0x0027",), False), (("0x005e",), False), (("0x0062",), True), (("0x0063", "0x0063"), True)],
    ids=["none", "v2 or v3", "v4", "v5p", "v5e"],
)
def test_chips_of_the_fifth_generation_have_pjrt(chips, has_pjrt, tmp_path, libtpu):
    environment = {"TPU_LOAD_LIBRARY": "0", "HOME": "/"}
    tpu_library.configure(environment, make_devices(tmp_path, *chips))
    pjrt = {"NEXT_PLUGGABLE_DEVICE_USE_C_API": "true", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": libtpu}
    assert environment == {"HOME": "/", **(pjrt if has_pjrt else {})}


def test_library_in_googles_images(tmp_path, monkeypatch):
    monkeypatch.setattr(tpu_library, "GOOGLE_IMAGES_LIBRARY", tmp_path / "libtpu.so")
    devices = make_devices(tmp_path, "0x0063")
    without_library: dict[str, str] = {}
    tpu_library.configure(without_library, devices)
    assert without_library == {}
    (tmp_path / "libtpu.so").touch()
    environment: dict[str, str] = {}
    tpu_library.configure(environment, devices)
    assert environment["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"] == str(tmp_path / "libtpu.so")


def test_what_the_image_says_is_kept(tmp_path, libtpu):
    own = {"NEXT_PLUGGABLE_DEVICE_USE_C_API": "false", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/own/libtpu.so"}
    environment = dict(own)
    tpu_library.configure(environment, make_devices(tmp_path, "0x0063"))
    assert environment == own
