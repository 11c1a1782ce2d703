"""TFX components for distributed training.

`Trainer` replaces `tfx.components.Trainer` in an existing pipeline:

```python
from tfx_distribute.components import Trainer
```
"""

from tfx_distribute.components.trainer.component import Trainer

__all__ = ["Trainer"]
