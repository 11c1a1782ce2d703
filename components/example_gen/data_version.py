"""Reads the version of its data that an ExampleGen without files declares.

Nothing can tell whether a database has changed, so that an ExampleGen that reads one
runs each time on a cluster, and everything after it too. One that knows its data says
so:

```python
class DigitsExampleGen(QueryBasedExampleGen):
    data_version = "1"
```
"""

from tfx.dsl.components.base import base_node


def find(component: base_node.BaseNode) -> str | None:
    """Returns the `data_version` of a component; None if it declares none.

    It is an attribute or property of the class, or an attribute of the component.
    """
    return getattr(component, "data_version", None) or None
