"""Reads the version of its data that an ExampleGen without files declares.

Nothing can tell whether a database has changed, so that an ExampleGen that reads one
runs each time on a cluster, and everything after it too. One that knows its data says
so:

```python
class DigitsExampleGen(QueryBasedExampleGen):
    data_version = "1"
```
"""

import inspect

from tfx.dsl.components.base import base_node

from tfx_distribute.trainer_module.errors import ConfigurationError


def find(component: base_node.BaseNode) -> str | None:
    """Returns the `data_version` of a component; None if it declares none.

    It is an attribute or property of the class, or an attribute of the component.

    Raises:
      ConfigurationError: It is not a text, it is empty, or reading it fails.
    """
    try:
        inspect.getattr_static(component, "data_version")
    except AttributeError:
        return None
    try:
        version = component.data_version
    except Exception as error:  # a property may ask a database
        raise ConfigurationError(f"{component.id}.data_version: cannot be read: {type(error).__name__}: {error}") from error
    if version is None or (isinstance(version, str) and version):
        return version
    raise ConfigurationError(
        f"{component.id}.data_version: {version!r} is not a version; write a text that changes whenever the data does, such "
        "as '2026-11-01', or None to read the data each time"
    )
