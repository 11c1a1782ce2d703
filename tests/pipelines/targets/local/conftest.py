from datetime import datetime

import pytest
from tfx.orchestration import metadata, pipeline

from tfx_distribute.pipelines.targets.local import runner as local_runner


@pytest.fixture
def run():
    """Returns a function that runs nodes as a pipeline, with the cache of a root.

    It returns the nodes that came from the cache. `ended` receives each node that
    ended, and True if it came from the cache.
    """

    def run(root, *nodes, ended=None):
        ended = {} if ended is None else ended

        def listen(node, seconds, cached):
            if seconds is not None:
                ended[node] = cached

        one_run = pipeline.Pipeline(
            pipeline_name="mine",
            pipeline_root=str(root / "artifacts"),
            components=list(nodes),
            enable_cache=True,
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(root / "metadata.sqlite")),
        )
        root.mkdir(exist_ok=True)
        local_runner.LocalRunner({}, listen, datetime.now().isoformat()).run(one_run)
        return {node for node, cached in ended.items() if cached}

    return run
