"""Chooses the model that was blessed last, and the data that were accepted last."""

from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants
from tfx.dsl.components.common import resolver

from tfx_distribute.components.pusher.versions import WITHDRAWN

MODEL, BLESSING, ANOMALIES = "model", "model_blessing", "anomalies"


class LatestBlessing(resolver.ResolverStrategy):
    """Resolves the model that the latest run has blessed.

    TFX's LatestBlessedModelStrategy takes the one that was trained last. After a return
    to earlier data or parameters, a run takes its model from the cache, and blesses a
    model that was trained before others. Models that a rollback has withdrawn do not
    count.
    """

    def resolve_artifacts(self, store: Any, input_dict: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Returns a model of `MODEL` and its blessing of `BLESSING`, or none."""
        models = {model.id: model for model in input_dict[MODEL] if not model.get_int_custom_property(WITHDRAWN)}
        blessed = constants.ARTIFACT_PROPERTY_BLESSED_KEY
        blessings = {each.id: each for each in input_dict[BLESSING] if each.get_int_custom_property(blessed) == 1}
        events = store.get_events_by_artifact_ids(list(blessings)) if blessings else []
        # A run that takes a blessing from the cache has an event too.
        for event in sorted(events, key=lambda event: event.execution_id, reverse=True):
            blessing = blessings[event.artifact_id]
            model = models.get(blessing.get_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY))
            if event.type == metadata_store_pb2.Event.OUTPUT and model:
                return {MODEL: [model], BLESSING: [blessing]}
        return {MODEL: [], BLESSING: []}


class LastData(resolver.ResolverStrategy):
    """Resolves the latest anomalies of the pipeline, or none in its first run.

    TFX's LatestArtifactStrategy does not run the pipeline if there are none. A node
    that fails has no output: those of a run that was stopped are never found.
    """

    def resolve_artifacts(self, store: Any, input_dict: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Returns the artifact of `ANOMALIES` that was written last, if any."""
        return {ANOMALIES: sorted(input_dict[ANOMALIES], key=lambda artifact: artifact.id)[-1:]}
