from tfx_distribute.components.beam.errors import find_own
from tfx_distribute.trainer_module.errors import DataError, PreemptedError

PRINTED = """Traceback (most recent call last):
  File "model.py", line 3, in process
    raise {name}("no column 'x'") from error
{name}: no column 'x';
write one{end}
"""


def test_printed_errors():
    """As the workers of all runners pass them on."""
    for end in ("", " [while running 'Read']", "\n\nDuring handling of the above exception, another exception occurred:"):
        own = find_own(RuntimeError(PRINTED.format(name="tfx_distribute.trainer_module.errors.DataError", end=end)))
        assert type(own) is DataError
        assert str(own) == "no column 'x';\nwrite one"
    assert find_own(RuntimeError(PRINTED.format(name="pandas.errors.DataError", end=""))) is None


def test_the_name_of_the_transform_is_left_out():
    error = PreemptedError("stopped [while running 'Read']")
    assert str(find_own(error)) == "stopped"
    wrapped = RuntimeError("failed")
    wrapped.__cause__ = error
    assert isinstance(find_own(wrapped), PreemptedError)
