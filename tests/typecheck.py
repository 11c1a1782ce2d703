"""Runs mypy on the three top-level packages under their installed import name.

Installation maps the folders to `tfx_distribute.*`, which mypy does not follow, so this
makes a folder of links instead.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Runs mypy and returns its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "tfx_distribute"
        package.mkdir()
        for source in (*(ROOT / "src" / "tfx_distribute").iterdir(), *(ROOT / top for top in _mapped())):
            (package / source.name).symlink_to(source)
        command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "-p", "tfx_distribute"]
        return subprocess.run([*command, "--cache-dir", str(ROOT / ".mypy_cache")], cwd=folder, check=False).returncode


def _mapped() -> tuple[str, ...]:
    return ("components", "pipelines", "trainer_module")


if __name__ == "__main__":
    sys.exit(main())
