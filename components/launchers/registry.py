"""Finds launchers by name, and reads and writes their settings.

The settings are a document of JSON, an execution property of Trainers that may train on
other machines. Launchers of other packages are found by their entry points, in group
`tfx_distribute.launchers`.
"""

import json
from importlib import metadata
from typing import Any

from pydantic import TypeAdapter

from tfx_distribute.components.launchers.launcher import Launcher, LauncherSettings
from tfx_distribute.trainer_module.errors import ConfigurationError

GROUP = "tfx_distribute.launchers"
# Name -> "module:class".
LAUNCHERS = {
    "kubernetes": "tfx_distribute.components.launchers.kubernetes.launcher:KubernetesLauncher",
    "vertex": "tfx_distribute.components.launchers.vertex.launcher:VertexLauncher",
}


def find(name: str) -> type[Launcher[Any]]:
    """Returns a launcher's class; raises a ConfigurationError if no package has it."""
    launchers = {point.name: point for point in metadata.entry_points(group=GROUP)}
    # Other packages cannot replace these.
    launchers.update({own: metadata.EntryPoint(own, path, GROUP) for own, path in LAUNCHERS.items()})
    if name not in launchers:
        raise ConfigurationError(f"launcher: no package here has {name!r}; install the one that has it in the image")
    launcher: type[Launcher[Any]] = launchers[name].load()
    return launcher


def to_json(settings: LauncherSettings) -> str:
    """Writes settings as a document of JSON."""
    document = TypeAdapter(type(settings)).dump_python(settings, mode="json")
    return json.dumps({"launcher": settings.LAUNCHER, **document})


def from_json(text: str) -> LauncherSettings:
    """Reads settings from a document of JSON.

    Raises:
      ConfigurationError: No installed package has the launcher.
      pydantic.ValidationError: The document does not describe its settings.
    """
    document = json.loads(text)
    settings_class = find(document.pop("launcher")).Settings
    return TypeAdapter(settings_class).validate_python(document)


def make(settings: LauncherSettings) -> Launcher[Any]:
    """Returns a launcher for one training."""
    return find(settings.LAUNCHER)(settings)
