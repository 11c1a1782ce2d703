"""Runs what `python ARGUMENTS` would, in a fork of a process that has imported TFX.

    pytest --tx "3*popen//python=.venv/bin/python tests/fakes/forked_python.py"

is `pytest -n 3`, but each parallel process begins with TFX, which it would take 10 CPU
seconds to import. Needs the environment variable `IMPORTERS`, which pytest's main
process sets.
"""

import os
import sys
from pathlib import Path

from forked import TFX, fork

sys.exit(fork(Path(os.environ["IMPORTERS"]), TFX, sys.argv[1:], os.environ, os.getcwd(), (0, 1, 2)).wait())
