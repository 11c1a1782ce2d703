"""Launches trainings: one interface, one loop, and one room for each platform.

`launcher.py` has the interface `Launcher`, and `follow`, the loop that is the same on
all platforms. Each room has a launcher of its own:

* `local/`: processes on this machine.
* `kubernetes/`: pods of a TFJob or a JobSet.
* `vertex/`: worker pools of a CustomJob of Vertex AI.

`registry.py` finds launchers by name, those of other packages too, and writes their
settings. They share `errors.py`, `retry.py` and `storage.py` (services that may not
answer), and `sigterm.py` (signals to a launcher). `locks.py` keeps two live runs from
writing to one folder.
"""
