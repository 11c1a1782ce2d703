"""Defines fixtures for tests of pipelines."""

from pathlib import Path

import pytest
from small_project import write_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a small project the working folder of the test."""
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
