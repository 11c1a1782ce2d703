"""Defines the command `notify`, and sends notifications about runs."""

import contextlib
import itertools
import logging
import math
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import click

from tfx_distribute.pipelines.cli.options import FAILED, INVALID, PIPELINE, refuse, warn
from tfx_distribute.trainer_module.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from tfx_distribute.components.report.data import Evaluation
    from tfx_distribute.pipelines.notify.message import Ending, Facts, Message, MetricLine
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
        facts = _find_facts(spec, paths, ending)
        outcome = message.choose_outcome(facts.outcome, spec.notify.when)
        return _send(spec.notify, message.compose(replace(facts, outcome=outcome))) if outcome else ()
    except (Exception, KeyboardInterrupt) as error:
        logging.getLogger(__name__).exception("notify")
        return [f"no notification was sent: {type(error).__name__}"]


def _send(settings: "Notify", message: "Message") -> list[str]:
    from tfx_distribute.pipelines.notify import sending

    if text := sending.describe_missing(settings.urls):
        return [text]
    return [f"not sent to {failure}" for failure in sending.send(message, sending.read_addresses(settings.urls))]


def _find_facts(spec: "PipelineSpec", paths: "RunPaths | None", ending: "Ending") -> "Facts":
    """Returns what there is to tell about a run, as far as it can be read."""
    from tfx_distribute.pipelines.cli import terminal
    from tfx_distribute.pipelines.notify import message

    reason = terminal.escape(ending.reason)
    facts = message.Facts(spec.name, message.find_outcome(ending.code), socket.gethostname(), reason=reason)
    if paths is None:
        return facts
    from tfx_distribute.pipelines.targets.local import commands, report

    facts = replace(facts, run=paths.run_id, log=str(paths.log))
    known = _iterate_runs(paths.root)
    latest = next(known, None)
    run = latest if latest and latest.id == paths.run_id else None  # it has locked the folder
    before = next(known, None) if run else latest
    if before:
        facts = replace(facts, outcome=message.find_outcome(ending.code, _describe_end(before)))
    if run:
        report_command = commands.report_command(run.id, run.root)
        unread = {"not read": ending.unread} if ending.unread else {}
        facts = replace(facts, data={**report.describe_data(run), **unread}, report=report_command)
    if ending.result:
        evaluation, earlier = ending.result.evaluation, itertools.chain([before] if before else [], known)
        model = ending.result.pushed or ending.result.model + (" (not pushed)" if spec.push else "")
        facts = replace(
            facts,
            metrics=_list_metrics(evaluation, earlier) if evaluation else (),
            unusable_baseline=terminal.escape(ending.result.unusable_baseline),
            model=model,
        )
    return facts


def _iterate_runs(root: "Path") -> "Iterator[Run]":
    """Yields the runs that can be read, the latest first."""
    from tfx_distribute.pipelines.targets.local import runs

    with contextlib.suppress(ConfigurationError):
        yield from runs.iterate_runs([root])


def _describe_end(run: "Run") -> str:
    """Returns the outcome of an earlier run, or its state if it has none."""
    if run.state != "complete":
        return run.state
    return "not_blessed" if run.blessed is False else "succeeded"


def _list_metrics(evaluation: "Evaluation", earlier: "Iterable[Run]") -> "tuple[MetricLine, ...]":
    """Returns a run's metrics, with those of the last one that was evaluated."""
    from tfx_distribute.components.report import evaluation as evaluation_lib
    from tfx_distribute.pipelines.notify.message import MetricLine

    evaluations = (run.find("ModelEvaluation") for run in earlier)
    last = next((found.info for found in evaluations if found and not found.info.is_missing), None)
    before: dict[str, float] = {}
    if last:
        with contextlib.suppress(Exception):  # of another version, or damaged
            before = {name: cell.value for name, cell in evaluation_lib.read(last.uri).overall.items()}
    thresholds, verdicts = evaluation.thresholds, evaluation.describe_verdicts()
    texts = {name: f"{thresholds.get(name, '')} {verdict}" for name, verdict in verdicts.items()}
    return tuple(
        MetricLine(name, cell.value, texts.get(name, ""), before.get(name))
        for name, cell in evaluation.overall.items()
        if math.isfinite(cell.value) or name in texts
    )
