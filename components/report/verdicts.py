"""Words thresholds on change, and verdicts. Imports neither TFX nor TensorFlow."""

from collections.abc import Collection

MAX_SLICES = 3  # that are named; the others are counted


def describe_change(absolute: float | None, relative: float | None, higher_is_better: bool) -> str:
    """Describes a threshold on change since the latest blessed model.

    Example:
      >>> describe_change(-0.2, None, higher_is_better=True)
      'change of at least -0.2'
    """
    bounds = [f"{absolute:+g}"] if absolute is not None else []
    bounds += [f"{100 * relative:+g} %"] if relative is not None else []
    return f"change of at {'least' if higher_is_better else 'most'} {' and '.join(bounds)}"


def describe_unusable_baseline(reason: str) -> str:
    """Says why the latest blessed model was not compared with; empty if it was."""
    return f"not compared with the latest blessed model: {reason}" if reason else ""


def describe_verdict(failed_on: Collection[str], value: float, unmet_change: float | None = None) -> str:
    """Says if the thresholds on a metric are met.

    `failed_on` has the slices on which one is not met, the empty string for all
    examples. `value` is over all examples. `unmet_change` is the difference from the
    blessed model's value over all examples, if a threshold on it is not met. Without
    that value, the difference from the last run, which a message has too, would seem to
    be meant.

    Example:
      >>> describe_verdict([""], 0.72, -0.23)
      "not met: -0.23 from the blessed model's 0.95"
    """
    if not failed_on:
        return "met"
    baseline = "" if unmet_change is None else f": {unmet_change:+.6g} from the blessed model's {value - unmet_change:.6g}"
    slices = sorted(name for name in failed_on if name)
    if not slices:
        return f"not met{baseline}"
    shown = ", ".join(slices[:MAX_SLICES]) + (", ..." if len(slices) > MAX_SLICES else "")
    where = f"{len(slices)} slice{'s' if len(slices) > 1 else ''} ({shown})"
    return f"not met{baseline}, also on {where}" if "" in failed_on else f"not met on {where}"
