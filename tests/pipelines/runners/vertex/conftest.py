"""Defines the project of the example on the stand-in of Vertex AI."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from vertex_api import VertexApi
from vertex_example import IMAGE
from vertex_pools import Options


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[VertexApi]:
    """Returns the example's project, with its bucket and image, and without roles."""
    options = Options(start_spacing=0.0, grace=0.5)
    with VertexApi(tmp_path, options, project="example-project", location="europe-west4") as api:
        api.around.make_bucket("example-bucket", is_open=False)
        api.around.images[IMAGE] = {"1-gpu"}
        yield api
