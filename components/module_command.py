"""Builds commands that run modules of installed packages in new processes."""

import sys

# The first entry of sys.path is the working folder. An installed program must not
# import from it: in a folder that others can write to, it would run their code.
# Python 3.11 has the option -P for this.
_RUN = "import sys; del sys.path[0]; import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"


def module_command(module: str) -> list[str]:
    """Returns a command like `python -m MODULE` that ignores the working folder."""
    return [sys.executable, "-c", _RUN.format(module)]
