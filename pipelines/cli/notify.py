"""Defines the command `notify`, and sends notifications about runs."""

import contextlib
import itertools
import logging
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from tfx_distribute.pipelines.cli import terminal
from tfx_distribute.pipelines.cli.options import FAILED, INVALID, PIPELINE, refuse, refusing_errors, warn
from tfx_distribute.pipelines.notify import message, sending
from tfx_distribute.trainer_module.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tfx_distribute.pipelines.spec.pipeline import Notify, PipelineSpec
    from tfx_distribute.pipelines.targets.local.paths import RunPaths


@click.command()
@PIPELINE
@click.option("--test", is_flag=True, help="Send a test notification.")
def notify(pipeline: str, test: bool) -> None:
    """Shows where notifications about runs on this machine go.

    With --test, sends one to each address. Exit code 1 means that one was not sent.
    """
    from tfx_distribute.pipelines.spec import loader

    with refusing_errors():
        spec = loader.load(pipeline)
    if spec.notify is None:
        refuse(f"notify: is missing in {pipeline}; write notify: {{urls: NOTIFY_URLS}}")
    addresses = sending.read_addresses(spec.notify.urls)
    if test:
        text = f"Messages about runs of {spec.name} arrive here.\nhost: {socket.gethostname()}"
        failures = _send(spec.notify, message.Message(f"{spec.name}: test", text, is_good=True))
        for failure in failures:
            click.echo(f"Error: {failure}", err=True)
        if failures:
            sys.exit(FAILED)
    else:
        warn_if_missing(spec)
    for address in addresses:
        click.echo(f"{'sent to ' if test else ''}{sending.describe_address(address)}")


def warn_if_missing(spec: "PipelineSpec") -> None:
    """Warns if the environment variable with the addresses is not set."""
    if spec.notify and (text := sending.describe_missing(spec.notify.urls)):
        warn(text)


def refuse_run(spec: "PipelineSpec", text: str) -> NoReturn:
    """Refuses a run, as `refuse` does, and sends a notification that it has failed."""
    try:
        refuse(text)
    finally:
        for failure in _tell(spec, None, message.Ending(INVALID, text)):
            warn(failure)


def tell_end(spec: "PipelineSpec", paths: "RunPaths", console: "Console", ending: message.Ending) -> None:
    """Sends the notifications about a run; a failure does not change the exit code."""
    for failure in _tell(spec, paths, ending):
        console.print(f"Warning: {failure}", style="yellow", markup=False)
        logging.getLogger(__name__).warning(failure)


def _tell(spec: "PipelineSpec", paths: "RunPaths | None", ending: message.Ending) -> "Sequence[str]":
    """Returns a line for each message that could not be sent."""
    if spec.notify is None or not ending.is_news:
        return ()
    try:
        found, facts = _find_facts(paths, ending)
        outcome = message.choose_outcome(found, spec.notify.when)
        return _send(spec.notify, message.compose(spec.name, outcome, facts)) if outcome else ()
    except (Exception, KeyboardInterrupt) as error:
        logging.getLogger(__name__).exception("notify")
        return [f"no notification was sent: {type(error).__name__}"]


def _send(settings: "Notify", composed: message.Message) -> list[str]:
    if text := sending.describe_missing(settings.urls):
        return [text]
    return [f"not sent to {failure}" for failure in sending.send(composed, sending.read_addresses(settings.urls))]


def _find_facts(paths: "RunPaths | None", ending: message.Ending) -> tuple[str, dict[str, str]]:
    """Returns the outcome of a run, and the facts that can be read."""
    facts, before = {"reason": ending.reason}, "succeeded"
    if paths is not None:
        from tfx_distribute.pipelines.targets.local import results, runs

        facts, run = {"run": paths.run_id, "reason": ending.reason, "log": str(paths.log)}, None
        with contextlib.suppress(ConfigurationError):
            for each in itertools.islice(runs.iterate_runs([paths.root]), 2):
                if each.id != paths.run_id:
                    before = "succeeded" if each.state == "complete" else each.state
                    before = "not_blessed" if before == "succeeded" and each.blessed is False else before
                    break
                run = each
        if run:
            found = results.list_facts(run, results.read_evaluation(run)[0])
            shown = {fact.name: message.describe_metric(fact.text, fact.verdict) for fact in found}
            facts = {"run": run.id, **run.data, "reason": ending.reason, **shown, **results.list_commands(run)}
    facts = {name: terminal.escape(text) for name, text in {**facts, "host": socket.gethostname()}.items()}
    return message.find_outcome(ending.code, before), facts
