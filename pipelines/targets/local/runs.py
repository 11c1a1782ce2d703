"""Finds the runs of this machine in their ML Metadata stores.

Imports neither TFX nor TensorFlow. Works for cached nodes, and for runs that failed.
"""

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_metadata import errors as metadata_errors
from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2

from tfx_distribute.components.example_gen.names import NEWEST_SPAN, SPANS, describe_examples
from tfx_distribute.components.example_validator.rules import STOPPED, stopped_folder
from tfx_distribute.components.launchers import locks
from tfx_distribute.components.report.data import UNUSABLE_BASELINE, Artifact, Node, training_properties
from tfx_distribute.pipelines.targets.local import stored_artifacts
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.parameters import GROUPS

METADATA_FILE = "metadata.sqlite"
ARTIFACTS = "artifacts"  # in it: <node>/<output>/<execution>
DEFAULT_ROOTS = "runs"  # has a folder for each pipeline
_STATES = {
    metadata_store_pb2.Execution.COMPLETE: "complete",
    metadata_store_pb2.Execution.CACHED: "cached",
    metadata_store_pb2.Execution.FAILED: "failed",
    metadata_store_pb2.Execution.CANCELED: "canceled",
}
_OUTPUTS = (metadata_store_pb2.Event.OUTPUT, metadata_store_pb2.Event.INTERNAL_OUTPUT)
_INPUTS = (metadata_store_pb2.Event.INPUT, metadata_store_pb2.Event.INTERNAL_INPUT)
_UNREADABLE = (metadata_errors.StatusError, RuntimeError)  # raised for a store that is damaged
# TFX's metadata has a bool as 0 or 1, which equals it.
_DEFAULTS = {field.name: field.default for group in GROUPS for field in dataclasses.fields(group)}
# The Trainer's execution properties that are not pipeline parameters: ours, and TFX's.
_NO_PARAMETERS = (
    *("fingerprint", "module_fingerprint", "hparams", "has_base_model"),
    *("train_args", "eval_args", "custom_config", "build_model", "run_fn", "module_file", "module_path"),
)


@dataclass(frozen=True)
class Run:
    """A run on this machine.

    Attributes:
      id: Its id, which is the name of its log folder too.
      root: Folder of all runs of the pipeline.
      state: `complete`, `failed`, `stopped` (its data were rejected), `canceled`,
        `interrupted` or `running`.
      started: Unix time of its start, in seconds.
      seconds: Duration up to the end of its last node, or if it was ended, to the last
        line in its log; None while it runs.
      nodes: Its nodes, in the order in which they started.
      parameters: Name of a pipeline parameter -> its value; empty before the Trainer.
      hparams: Name of a hyperparameter -> the value that a search has found, or the
        one in the pipeline file.
      module: Beginning of the fingerprint of the module and the files next to it;
        empty if it is not known.
      logs: Its log folder; None if it has been deleted.
    """

    id: str
    pipeline: str
    root: Path
    state: str
    started: float
    seconds: float | None
    nodes: tuple[Node, ...]
    artifacts: tuple[Artifact, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    hparams: Mapping[str, Any] = field(default_factory=dict)
    module: str = ""
    logs: Path | None = None

    def find(self, type_name: str) -> Artifact | None:
        """Returns the first artifact of a type; None if there is none.

        Those that a resolver has found are of earlier runs, and do not count.
        """
        artifacts = (artifact for artifact in self.artifacts if not artifact.is_resolved)
        return next((artifact for artifact in artifacts if artifact.type == type_name), None)

    @property
    def model(self) -> Artifact | None:
        """The trained model, as opposed to one that training or evaluation read."""
        models = [artifact for artifact in self.artifacts if artifact.type == "Model"]
        trainings = {artifact.node for artifact in self.artifacts if artifact.type == "ModelRun"}
        return next((model for model in models if model.node in trainings), None)

    def read_properties(self, type_name: str) -> Mapping[str, Any]:
        """Returns the properties of the first artifact of a type; empty without one."""
        artifact = self.find(type_name)
        return artifact.properties if artifact else {}

    @property
    def training(self) -> dict[str, Any]:
        """How its model was trained, by name."""
        return dict(sorted(training_properties(self.model.properties).items())) if self.model else {}

    @property
    def spans(self) -> str:
        """The spans that it has read, as text; empty if there were none."""
        return str(self.read_properties("Examples").get(SPANS, ""))

    @property
    def data(self) -> dict[str, str]:
        """The spans of its data, and which examples were left out, if any."""
        return describe_examples(self.read_properties("Examples"))

    @property
    def blessed(self) -> bool | None:
        """True if its model meets all thresholds; None without a verdict."""
        properties = self.read_properties("ModelBlessing")
        return bool(properties["blessed"]) if "blessed" in properties else None

    @property
    def unusable_baseline(self) -> str:
        """Why the model was not compared with the latest blessed one, or empty."""
        return str(self.read_properties("ModelBlessing").get(UNUSABLE_BASELINE, ""))

    @property
    def pushed(self) -> str:
        """The folder of the pushed model; empty if none was pushed."""
        properties = self.read_properties("PushedModel")
        return str(properties["pushed_destination"]) if properties.get("pushed") else ""

    @property
    def defaults(self) -> dict[str, Any]:
        """The parameters that have their default values."""
        return {name: value for name, value in self.parameters.items() if _DEFAULTS.get(name) == value}

    @property
    def changes(self) -> dict[str, Any]:
        """The parameters that have other values."""
        return {name: value for name, value in self.parameters.items() if name not in self.defaults}


def open_store(root: Path, mode: int = metadata_store_pb2.SqliteMetadataSourceConfig.READONLY) -> Any:
    """Opens the ML Metadata store of a folder of runs."""
    sqlite = metadata_store_pb2.SqliteMetadataSourceConfig(filename_uri=str(root / METADATA_FILE), connection_mode=mode)
    return metadata_store.MetadataStore(metadata_store_pb2.ConnectionConfig(sqlite=sqlite))


def find_roots(root: str | None) -> list[Path]:
    """Returns the folders that have runs: `root`, or by default those in `runs`."""
    if root is not None:
        if not (Path(root) / METADATA_FILE).is_file():
            raise ConfigurationError(
                f"--root: there are no runs in {root}; write the folder of a pipeline's runs, such as runs/digits"
            )
        return [Path(root)]
    roots = sorted(path.parent for path in Path(DEFAULT_ROOTS).glob(f"*/{METADATA_FILE}"))
    if not roots:
        raise ConfigurationError(f"--root: there are no runs in {DEFAULT_ROOTS}/; write the folder that `run` wrote to")
    return roots


def iterate_runs(roots: Iterable[Path], warn: Callable[[str], None] | None = None) -> Iterator[Run]:
    """Yields the runs in some folders, the latest first.

    Each takes about 10 ms to read, which happens when it is asked for. `warn` is called
    with a message for each folder that cannot be read, and the others are listed. By
    default, such a folder raises a ConfigurationError.
    """
    return (stored.read() for stored in _list_stored(roots, warn))


def find(roots: Iterable[Path], name: str | None, warn: Callable[[str], None] | None = None) -> Run:
    """Finds a run, or raises a ConfigurationError if there is none, or several.

    `name` is the run's id, or the beginning of one, or the name of a pipeline for its
    latest run; None for the latest run of all. `warn` is as for `iterate_runs`.
    """
    roots = list(roots)
    stored = _list_stored(roots, warn)
    where = ", ".join(map(str, roots))
    if not stored:
        raise ConfigurationError(f"--root: there are no runs in {where}")
    if name is None:
        return stored[0].read()
    found = [each for each in stored if each.id == name]
    found = found or list(itertools.islice((each for each in stored if each.read_pipeline() == name), 1))
    found = found or [each for each in stored if name and each.id.startswith(name)]
    if len(found) == 1:
        return found[0].read()
    shown = ", ".join(each.id for each in (found or stored)[:5])
    if found:
        raise ConfigurationError(f"RUN: {len(found)} runs begin with {name!r}: {shown}; write more of the id")
    raise ConfigurationError(f"RUN: there is no run {name!r} in {where}; the latest are {shown}")


def list_newest_spans(root: Path) -> list[tuple[str, str]]:
    """Returns the newest span that each run has read, by id, the latest run first."""
    if not (root / METADATA_FILE).is_file():
        return []
    stored, found = _list_stored([root], None), dict[int, str]()
    store: Any = stored[0].store if stored else None
    for examples in store.get_artifacts_by_type("Examples") if store else ():
        if NEWEST_SPAN in examples.custom_properties:
            contexts = store.get_contexts_by_artifact(examples.id)  # of runs that took it from the cache, too
            found |= dict.fromkeys((each.id for each in contexts), examples.custom_properties[NEWEST_SPAN].string_value)
    return [(run.id, found[run.context.id]) for run in stored if run.context.id in found]


def _list_stored(roots: Iterable[Path], warn: Callable[[str], None] | None) -> "list[_Stored]":
    """Returns the runs in some folders, the latest first, which have not been read."""
    stored: list[_Stored] = []
    for root in roots:
        if not (root / METADATA_FILE).stat().st_size:  # a run that did not come to its first node
            continue
        try:
            store, holder = open_store(root), locks.find_holder(str(root))
            contexts = sorted(store.get_contexts_by_type("pipeline_run"), key=lambda each: each.create_time_since_epoch)
            stored += [_Stored(root, store, context, None) for context in contexts[:-1]]
            stored += [_Stored(root, store, last, holder.since_time if holder else None) for last in contexts[-1:]]
        except _UNREADABLE as error:
            text = f"{root / METADATA_FILE} cannot be read: it is damaged, or of another version of TFX"
            if warn is None:
                raise ConfigurationError(f"--root: {text}; write another --root") from error
            warn(f"{text}; its runs are left out")
    return sorted(stored, key=lambda each: each.context.create_time_since_epoch, reverse=True)


@dataclass(frozen=True)
class _Stored:
    """A run in the ML Metadata store of a folder, read only.

    `locked_since` is when the folder was locked, for the latest run.
    """

    root: Path
    store: Any
    context: Any
    locked_since: float | None

    @property
    def id(self) -> str:
        return str(self.context.name)

    def list_executions(self) -> list[Any]:
        return sorted(self.store.get_executions_by_context(self.context.id), key=lambda execution: execution.id)

    def read_pipeline(self) -> str:
        contexts = [each for one in self.list_executions()[:1] for each in self.store.get_contexts_by_execution(one.id)]
        return next((str(context.name) for context in contexts if context.type == "pipeline"), self.root.name)

    def read(self) -> Run:
        executions = self.list_executions()
        names = {execution.id: self._node_name(execution.id) for execution in executions}
        nodes = [self._to_node(execution, names[execution.id]) for execution in executions]
        started = self.context.create_time_since_epoch / 1000
        trainer = next((each for each in executions if str(each.type).rpartition(".")[2] == "Trainer"), None)
        properties = _read_properties(trainer.custom_properties) if trainer else {}
        state = _find_state([node.state for node in nodes], started, self.locked_since)
        last = max((execution.last_update_time_since_epoch / 1000 for execution in executions), default=started)
        folder = self.root / "logs" / self.id
        logs = folder if folder.is_dir() else None
        run = Run(
            id=self.id,
            pipeline=self.read_pipeline(),
            root=self.root,
            state=state,
            started=started,
            seconds=None if state == "running" else max(last, _end_of_log(logs) if state != "complete" else 0.0) - started,
            nodes=tuple(nodes),
            artifacts=(*self._list_artifacts(names), *self._list_unpublished(executions, names)),
            parameters={
                name: value
                for name, value in sorted(properties.items())
                if name not in _NO_PARAMETERS and value not in ("", "null")
            },
            hparams=_parse_object(properties.get("hparams")),
            module=str(properties.get("module_fingerprint", ""))[:8],
            logs=logs,
        )
        base_model = run.model.properties.get("base_model") if run.model else None
        parameters = {**run.parameters, **({"base_model": base_model} if base_model else {})}
        return dataclasses.replace(run, parameters=parameters, hparams={**run.hparams, **_read_best(run)})

    def _node_name(self, execution: int) -> str:
        for context in self.store.get_contexts_by_execution(execution):
            if context.type == "node":
                return str(context.name).rpartition(".")[2]
        return f"execution {execution}"

    def _to_node(self, execution: Any, name: str) -> Node:
        state = _STATES.get(execution.last_known_state, "running")
        result = execution.custom_properties["__execution_result__"].string_value  # of the executor
        if state == "failed" and _parse_object(result).get("code") == STOPPED:
            state = "stopped"
        start, end = (execution.create_time_since_epoch / 1000, execution.last_update_time_since_epoch / 1000)
        from_run, saved = self._find_original(execution.id) if state == "cached" else ("", None)
        return Node(name, state, start, None if state == "running" else end - start, from_run, saved)

    def _find_original(self, execution: int) -> tuple[str, float | None]:
        """Returns the run that wrote a cached execution's outputs, and its time."""
        events = self.store.get_events_by_execution_ids([execution])
        artifacts = [event.artifact_id for event in events if event.type in _OUTPUTS]
        writers = {
            event.execution_id for event in self.store.get_events_by_artifact_ids(artifacts) if event.type in _OUTPUTS
        }
        for writer in self.store.get_executions_by_id(sorted(writers)) if writers else ():
            if writer.last_known_state == metadata_store_pb2.Execution.COMPLETE:
                contexts = self.store.get_contexts_by_execution(writer.id)
                run = next((context.name for context in contexts if context.type == "pipeline_run"), "")
                return run, (writer.last_update_time_since_epoch - writer.create_time_since_epoch) / 1000
        return "", None

    def _list_artifacts(self, names: Mapping[int, str]) -> list[Artifact]:
        events = self.store.get_events_by_execution_ids(list(names)) if names else []
        ids = list(dict.fromkeys(event.artifact_id for event in events))
        stored = {artifact.id: artifact for artifact in self.store.get_artifacts_by_id(ids)} if ids else {}
        listed = []
        for event in sorted(events, key=lambda event: (event.execution_id, event.artifact_id)):
            artifact = stored.get(event.artifact_id)
            if event.type not in _OUTPUTS or artifact is None:
                continue
            used_by = [
                names[other.execution_id]
                for other in events
                if other.artifact_id == artifact.id and other.type in _INPUTS and other.execution_id in names
            ]
            is_local = "://" not in artifact.uri
            uri = str(stored_artifacts.find(self.root.absolute() / ARTIFACTS, artifact.uri)) if is_local else artifact.uri
            made = Artifact(
                node=names[event.execution_id],
                key=event.path.steps[0].key if event.path.steps else "",
                type=artifact.type,
                id=artifact.id,
                uri=uri,
                used_by=tuple(dict.fromkeys(used_by)),
                is_missing=is_local and not Path(uri).exists(),
                properties={**_read_properties(artifact.properties), **_read_properties(artifact.custom_properties)},
                is_resolved=event.type == metadata_store_pb2.Event.INTERNAL_OUTPUT,
            )
            listed.append(made)
        return listed

    def _list_unpublished(self, executions: Iterable[Any], names: Mapping[int, str]) -> list[Artifact]:
        """Lists what nodes that were ended or stopped have left: no event names it."""
        listed = []
        for execution in executions:
            node, root = names[execution.id], self.root.absolute() / ARTIFACTS / names[execution.id]
            if _STATES.get(execution.last_known_state) in ("complete", "cached"):
                continue
            listed.append(Artifact(node, "model_run", "ModelRun", 0, str(root / "model_run" / str(execution.id))))
            stopped = stopped_folder(str(root / "anomalies" / str(execution.id)))
            listed.append(Artifact(node, "anomalies", "ExampleAnomalies", 0, stopped))
        return [made for made in listed if Path(made.uri).is_dir()]


def _find_state(states: list[str], started: float, locked_since: float | None) -> str:
    for state in ("failed", "stopped", "canceled"):
        if state in states:
            return state
    # The lock may be that of a later run whose first node has not started.
    if locked_since is not None and ("running" in states or started >= locked_since):
        return "running"
    return "interrupted" if "running" in states or not states else "complete"


def _end_of_log(logs: Path | None) -> float:
    """Returns when a run last wrote to its log: TFX does not record when it ended."""
    with contextlib.suppress(OSError):
        return (logs / "run.log").stat().st_mtime if logs else 0.0
    return 0.0


def _read_best(run: Run) -> dict[str, Any]:
    """Returns the hyperparameters that a search has found; empty without one."""
    artifact = run.find("HyperParameters")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        text = Path(artifact.uri, "best_hyperparameters.txt").read_text(encoding="utf-8") if artifact else "{}"
        return dict(json.loads(text)["values"])
    return {}


def _read_properties(properties: Any) -> dict[str, Any]:
    """Returns the values of properties that are numbers or strings."""
    return {
        name: getattr(value, kind)
        for name, value in properties.items()
        if (kind := value.WhichOneof("value")) in ("int_value", "double_value", "string_value", "bool_value")
    }


def _parse_object(text: Any) -> dict[str, Any]:
    with contextlib.suppress(ValueError, TypeError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    return {}
