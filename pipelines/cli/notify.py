"""Defines the command `notify`, and sends notifications about runs."""

import contextlib
import itertools
import logging
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from tfx_distribute.pipelines.cli.options import FAILED, INVALID, PIPELINE, refuse, warn
from tfx_distribute.trainer_module.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from tfx_distribute.components.report.data import Evaluation
    from tfx_distribute.pipelines.notify.message import Ending, Message
    from tfx_distribute.pipelines.spec.pipeline import Notify, PipelineSpec
    from tfx_distribute.pipelines.targets.local.paths import RunPaths
    from tfx_distribute.pipelines.targets.local.runs import Run


@click.command()
@PIPELINE
@click.option("--test", is_flag=True, help="Send a test notification.")
def notify(pipeline: str, test: bool) -> None:
    """Shows where notifications about runs on this machine go.

    With --test, sends one to each address. Exit code 1 means that one was not sent.
    """
    from tfx_distribute.pipelines.spec import loader

    try:
        spec = loader.load(pipeline)
    except ConfigurationError as error:
        refuse(str(error))
    if spec.notify is None:
        refuse(f"notify: is missing in {pipeline}; write notify: {{urls: NOTIFY_URLS}}")
    from tfx_distribute.pipelines.notify import message, sending

    addresses = sending.read_addresses(spec.notify.urls)
    if test:
        failures = _send(spec.notify, message.make_test(spec.name, socket.gethostname()))
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
    if spec.notify:
        from tfx_distribute.pipelines.notify import sending

        if text := sending.describe_missing(spec.notify.urls):
            warn(text)


def refuse_run(spec: "PipelineSpec", text: str) -> NoReturn:
    """Refuses a run, as `refuse` does, and sends a notification that it has failed."""
    from tfx_distribute.pipelines.notify.message import Ending

    try:
        refuse(text)
    finally:
        for failure in _tell(spec, None, Ending(INVALID, text)):
            warn(failure)


def tell_end(spec: "PipelineSpec", paths: "RunPaths", console: "Console", ending: "Ending") -> None:
    """Sends the notifications about a run that has ended.

    Those that cannot be sent are printed and logged, and do not change the exit code.
    """
    for failure in _tell(spec, paths, ending):
        console.print(f"Warning: {failure}", style="yellow", markup=False)
        logging.getLogger(__name__).warning(failure)


def _tell(spec: "PipelineSpec", paths: "RunPaths | None", ending: "Ending") -> "Sequence[str]":
    """Returns a line for each message that could not be sent."""
    if spec.notify is None or not ending.is_news:
        return ()
    from tfx_distribute.pipelines.notify import message

    try:
        found, facts = _find_facts(spec, paths, ending)
        outcome = message.choose_outcome(found, spec.notify.when)
        return _send(spec.notify, message.compose(spec.name, outcome, facts)) if outcome else ()
    except (Exception, KeyboardInterrupt) as error:
        logging.getLogger(__name__).exception("notify")
        return [f"no notification was sent: {type(error).__name__}"]


def _send(settings: "Notify", message: "Message") -> list[str]:
    from tfx_distribute.pipelines.notify import sending

    if text := sending.describe_missing(settings.urls):
        return [text]
    return [f"not sent to {failure}" for failure in sending.send(message, sending.read_addresses(settings.urls))]


def _find_facts(spec: "PipelineSpec", paths: "RunPaths | None", ending: "Ending") -> tuple[str, dict[str, str]]:
    """Returns the outcome of a run, and the facts that can be read."""
    from tfx_distribute.components.report.data import describe_unusable_baseline
    from tfx_distribute.pipelines.cli import terminal
    from tfx_distribute.pipelines.notify import message

    reason, host = {"reason": terminal.escape(ending.reason)}, {"host": socket.gethostname()}
    if paths is None:
        return message.find_outcome(ending.code), {**reason, **host}
    from tfx_distribute.pipelines.targets.local import commands, report

    known = _iterate_runs(paths.root)
    latest = next(known, None)
    run = latest if latest and latest.id == paths.run_id else None  # it has locked the folder
    before = next(known, None) if run else latest
    facts = {"run": paths.run_id}
    if run:
        facts |= {**report.describe_data(run), "not read": ending.unread}
    facts |= reason
    if result := ending.result:
        facts |= _describe_metrics(result.evaluation, itertools.chain([before] if before else [], known))
        facts["baseline"] = terminal.escape(describe_unusable_baseline(result.unusable_baseline))
        facts["model"] = result.pushed or result.model + (" (not pushed)" if spec.push else "")
    if run:
        facts["report"] = commands.report_command(run.id, run.root)
    return message.find_outcome(ending.code, _describe_end(before)), {**facts, "log": str(paths.log), **host}


def _iterate_runs(root: "Path") -> "Iterator[Run]":
    """Yields the runs that can be read, the latest first."""
    from tfx_distribute.pipelines.targets.local import runs

    with contextlib.suppress(ConfigurationError):
        yield from runs.iterate_runs([root])


def _describe_end(run: "Run | None") -> str:
    """Returns the outcome of an earlier run, if any, or its state if it has none."""
    if run and run.state != "complete":
        return run.state
    return "not_blessed" if run and run.blessed is False else "succeeded"


def _describe_metrics(evaluation: "Evaluation | None", earlier: "Iterable[Run]") -> dict[str, str]:
    """Returns facts about metrics, with those of the last run that was evaluated."""
    from tfx_distribute.pipelines.notify import message
    from tfx_distribute.pipelines.targets.local import comparison

    if evaluation is None:
        return {}
    last = next((run for run in earlier if (found := run.find("ModelEvaluation")) and not found.info.is_missing), None)
    before, _ = comparison.read_evaluation(last) if last else (None, ())
    return message.describe_metrics(evaluation.values, evaluation.describe_thresholds(), before.values if before else {})
