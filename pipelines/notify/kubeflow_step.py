"""Sends the notification about a run on Kubeflow Pipelines, from a step of it.

    python -m tfx_distribute.pipelines.notify.kubeflow_step --run-id ID --settings JSON

The step runs when all others have ended, however they ended. It asks the metadata store
how: open-source Kubeflow Pipelines does not replace the placeholders for that
(https://github.com/kubeflow/pipelines/issues/10917), and its API server may be late, or
never know if Argo has compressed the workflow, as it does above a mebibyte. An error of
this step does not fail the run.
"""

import argparse
import contextlib
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import requests

from tfx_distribute.components import timeouts
from tfx_distribute.components.container import BLESSING, kubeflow_services
from tfx_distribute.components.example_gen.names import describe_examples
from tfx_distribute.components.report.data import UNUSABLE_BASELINE, VERDICTS, describe_unusable_baseline
from tfx_distribute.pipelines.notify import message, sending
from tfx_distribute.trainer_module.errors import ConfigurationError

MAX_RUNS = 100  # of which one may be the last run of the pipeline
# Where kfp's documentation has a pod's token for the API of an installation for several
# users.
TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
VALIDATOR = "ExampleValidator"  # the step that rejects data
_DONE = ("COMPLETE", "CACHED")  # states of steps
_FAILED = ("FAILED", "ERROR")  # states of runs
_FINAL = (*_FAILED, "SUCCEEDED", "SKIPPED", "CANCELED")


@dataclass(frozen=True)
class Settings:
    """Settings of the step, which are fixed when the pipeline is compiled.

    `urls` and `when` are those of `notify`, the services those of `targets.kubeflow`.
    `steps` are the names of the other steps. `page` is the address of the user
    interface; empty if unknown.
    """

    pipeline: str
    urls: str
    when: Sequence[str]
    steps: Sequence[str]
    api_service: str
    metadata_service: str
    page: str = ""

    def to_json(self) -> str:
        """Returns the argument `--settings`."""
        return json.dumps(asdict(self), sort_keys=True)


def ask_api(address: str, path: str, **query: Any) -> dict[str, Any]:
    """Returns the answer of Kubeflow Pipelines' API server to a request.

    `address` is its `host:port`, as a step reaches it. Raises a
    `requests.RequestException`.
    """
    authority = kubeflow_services.find_authority(kubeflow_services.API)
    with requests.Session() as session:
        session.trust_env = False  # no proxy: the server is in the cluster
        if TOKEN.exists():
            session.headers["Authorization"] = f"Bearer {TOKEN.read_text().strip()}"
        session.verify = authority or True
        url = f"http{'s' * (authority is not None)}://{address}/apis/v2beta1/{path}"
        answer = session.get(url, params=query, timeout=timeouts.HTTP_SECONDS)
    answer.raise_for_status()
    return dict(answer.json())


def find_last_state(address: str, run: Mapping[str, Any]) -> str:
    """Returns the final state of the run before, of the same pipeline and experiment.

    Empty if there is none.
    """
    pipeline = (run.get("pipeline_version_reference") or {}).get("pipeline_id")
    if not pipeline:  # it was started from a file
        return ""
    query = {"experiment_id": run["experiment_id"], "page_size": MAX_RUNS, "sort_by": "created_at desc"}
    for other in ask_api(address, "runs", **query).get("runs", ()):
        is_earlier = other["run_id"] != run["run_id"] and other.get("created_at", "") <= run.get("created_at", "")
        same = (other.get("pipeline_version_reference") or {}).get("pipeline_id") == pipeline
        if same and is_earlier and other.get("state") in _FINAL:
            return str(other["state"])
    return ""


def describe_end(states: Mapping[str, str], settings: Settings) -> tuple[str, str]:
    """Returns the outcome of a run, by its steps' states, and why it failed."""
    unfinished = {name: states.get(name, "") for name in settings.steps if states.get(name) not in _DONE}
    if not unfinished:
        return "succeeded", ""
    failed = [name for name, state in unfinished.items() if state == "FAILED"]
    started = [name for name, state in unfinished.items() if state]
    if failed:
        return "stopped" if failed[0] == VALIDATOR else "failed", f"{failed[0]}: its log says why"
    if started:
        return "failed", f"{started[0]}: its pod ended without reporting a result"
    return "failed", f"not started: {', '.join(unfinished)}; the page of the run says why"


def read_properties(artifacts: Mapping[str, Sequence[Any]], kind: str) -> dict[str, Any]:
    """Returns the custom properties of a run's artifacts of a type, all in one."""
    return {
        name: getattr(value, value.WhichOneof("value"))
        for artifact in artifacts.get(kind, ())
        for name, value in artifact.custom_properties.items()
    }


def find_facts(run_id: str, settings: Settings) -> tuple[str, dict[str, str]]:
    """Returns the outcome of a run, and the facts that can be known.

    The outcome is empty if somebody has ended the run.
    """
    log = f"{settings.page.rstrip('/')}/#/runs/details/{run_id}" if settings.page else ""
    places = {"log": log, "host": "Kubeflow Pipelines"}
    try:
        states = kubeflow_services.list_states(settings.metadata_service, run_id)
        artifacts = kubeflow_services.list_artifacts(settings.metadata_service, kubeflow_services.RUN_CONTEXT, run_id)
    except ConfigurationError as error:
        reason = f"the run has ended, but its steps could not be read: {error}"
        return "failed", {"run": run_id, "reason": reason, **places}
    outcome, reason = describe_end(states, settings)
    blessing, metrics = read_properties(artifacts, BLESSING), read_properties(artifacts, "system.Metrics")
    # Without thresholds, the model is neither blessed nor refused.
    if outcome == "succeeded" and not blessing.get("blessed", True):
        outcome, reason = "not_blessed", "the model does not meet its thresholds"
    verdicts = json.loads(blessing.get(VERDICTS, "{}"))
    values = {name: f"{value:.6g}" for name, value in sorted(metrics.items()) if isinstance(value, float)}
    facts = {
        "run": run_id,
        **describe_examples(read_properties(artifacts, "tfx.Examples")),
        "reason": reason,
        **{name: message.describe_metric(text, verdicts.get(name, "")) for name, text in values.items()},
        "baseline": describe_unusable_baseline(blessing.get(UNUSABLE_BASELINE, "")),
        "model": read_properties(artifacts, "tfx.PushedModel").get("pushed_destination", ""),
        **places,
    }
    with contextlib.suppress(requests.RequestException):
        run = ask_api(settings.api_service, f"runs/{run_id}")
        if run.get("state") in ("CANCELING", "CANCELED"):
            outcome = ""
        elif outcome == "succeeded" and find_last_state(settings.api_service, run) in _FAILED:
            outcome = "recovered"
    return outcome, facts


def main(argv: list[str] | None = None) -> int:
    """Sends the notification; returns the exit code, which is always 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--settings", required=True, type=json.loads)
    options = parser.parse_args(argv)
    settings = Settings(**options.settings)
    try:
        outcome, facts = find_facts(options.run_id, settings)
        wanted = message.choose_outcome(outcome, settings.when)
        if not wanted:
            print(f"no notification for the outcome {outcome or 'canceled'}")
        elif missing := sending.describe_missing(settings.urls):
            print(missing, file=sys.stderr)
        else:
            composed = message.compose(settings.pipeline, wanted, facts)
            failures = sending.send(composed, sending.read_addresses(settings.urls))
            print("\n".join(f"not sent to {failure}" for failure in failures) or f"sent: {wanted}")
    except Exception:
        traceback.print_exc()
    return 0


if __name__ == "__main__":
    sys.exit(main())
