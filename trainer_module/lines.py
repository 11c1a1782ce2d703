"""Defines the supported lines of TFX, and checks that one of them is installed.

The older line is for machines that cannot load the newer one's packages, which need
glibc 2.39. Remove it, and this module, when Debian 12 and Ubuntu 22.04 are no longer
supported.

Reads the metadata of installed packages, and imports none of them.
"""

import importlib.metadata
import os
import sys
from dataclasses import dataclass

from tfx_distribute.trainer_module.errors import ConfigurationError

GLIBC = (2, 39)  # of the newer line
FIRST_PYTHON = (3, 10)  # of both
_REINSTALL = "run `uv pip install .` in a checkout of tfx-distribute, in a new environment"


@dataclass(frozen=True)
class Line:
    """The versions of a line of TFX, each as `major.minor`.

    Attributes:
      tfx: TFX and its libraries, without those that have versions of their own.
      tensorflow: TensorFlow and Keras 2, which is the package `tf_keras`.
      model_analysis: TensorFlow Model Analysis.
      last_python: The newest Python that it runs on.
    """

    tfx: str
    tensorflow: str
    model_analysis: str
    last_python: tuple[int, int]

    @property
    def versions(self) -> dict[str, str]:
        """Returns the version of each package. One of TensorFlow's is installed."""
        libraries = ("tfx", "tfx-bsl", "tensorflow-data-validation", "tensorflow-transform", "ml-metadata")
        return {
            **dict.fromkeys(libraries, self.tfx),
            **dict.fromkeys(("tensorflow", "tensorflow-cpu", "tf-keras"), self.tensorflow),
            "tensorflow-model-analysis": self.model_analysis,
        }


LINES = (Line("1.16", "2.16", "0.47", (3, 10)), Line("1.21", "2.21", "0.52", (3, 13)))


def check() -> Line:
    """Checks that the installed packages belong to one line, which can run here.

    ```python
    check().tfx  # "1.21"
    ```

    Raises:
      ConfigurationError: TFX is not installed, packages of both lines are, or the
        installed line does not run with this version of Python or glibc.
    """
    _check_python(LINES[-1])
    found = {name: version for name in LINES[0].versions if (version := _find(name))}
    if "tfx" not in found:
        raise ConfigurationError(f"the package tfx is not installed for {sys.executable}; {_REINSTALL}")
    lines = {line.tfx: line for line in LINES}
    line = lines.pop(found["tfx"], None)
    if line is None:
        raise ConfigurationError(
            f"TFX {found['tfx']} is installed, and tfx-distribute runs with TFX {LINES[0].tfx} and {LINES[1].tfx}; "
            f"{_REINSTALL}"
        )
    # Others, such as a build of TensorFlow for TPUs, are the user's choice.
    (other,) = lines.values()
    wrong = {name: version for name, version in found.items() if version == other.versions[name]}
    if wrong:
        names = " and ".join(f"{name} {version}" for name, version in wrong.items())
        needed = " ".join(f"'{name}=={line.versions[name]}.*'" for name in wrong)
        raise ConfigurationError(
            f"TFX {line.tfx} is installed with {names}, which it cannot use; run `uv pip install {needed}`, or {_REINSTALL}"
        )
    _check_python(line)
    if line is LINES[-1]:
        _check_glibc()
    return line


def is_older_tensorflow(version: str) -> bool:
    """Returns True for a version of TensorFlow that the older line has.

    Its DTensor cannot apply the gradients of some optimizers to a divided variable.

    ```python
    is_older_tensorflow("2.16.2")  # True
    ```
    """
    return version.startswith(f"{LINES[0].tensorflow}.")


def _find(name: str) -> str | None:
    try:
        return ".".join(importlib.metadata.version(name).split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_python(line: Line) -> None:
    if FIRST_PYTHON <= sys.version_info[:2] <= line.last_python:
        return
    this, first, last = ("{}.{}".format(*version[:2]) for version in (sys.version_info, FIRST_PYTHON, line.last_python))
    raise ConfigurationError(
        f"this is Python {this}, and TFX {line.tfx} runs on Python {first if first == last else f'{first} to {last}'}; "
        f"create an environment with `uv venv --python {last}`, and run `uv pip install .` in it, in a checkout of "
        "tfx-distribute"
    )


def _check_glibc() -> None:
    library = os.confstr("CS_GNU_LIBC_VERSION") or ""  # "glibc 2.36"
    name, _, version = library.partition(" ")
    if name == "glibc" and tuple(map(int, version.split(".")[:2])) < GLIBC:
        raise ConfigurationError(
            f"this machine has glibc {version}, and TFX {LINES[-1].tfx} needs glibc {GLIBC[0]}.{GLIBC[1]} (Debian 13, "
            f"Ubuntu 24.04); with Python 3.10, {_REINSTALL}, which takes TFX {LINES[0].tfx}"
        )
