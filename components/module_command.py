"""Starts Python modules of installed packages in processes of their own."""

import sys

# The first entry is the working folder, of which a program that is installed must not import anything: in a folder that
# others can write to, it would run their code. Python 3.11 has the option -P for it.
_RUN = "import sys; del sys.path[0]; import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"


def module_command(module: str) -> list[str]:
    """Returns the words of a command that does what `python -m MODULE` does, without importing from the working folder.

    ```python
    subprocess.Popen(module_command("apache_beam.runners.worker.sdk_worker_main"))
    ```

    Args:
      module: Dotted name of an installed module.
    """
    return [sys.executable, "-c", _RUN.format(module)]
