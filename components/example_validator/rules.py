"""Decides which anomalies of the data stop a run.

Imports neither TFX nor TensorFlow.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

BASELINE, RULES, STOP_ON_ANOMALIES = "baseline", "rules", "stop_on_anomalies"  # names of the component's parameters
# Code of the result of an execution whose data were rejected: FAILED_PRECONDITION.
STOPPED = 9
FAIL, WARN = "fail", "warn"
ALL_FEATURES = "*"
_TYPE = anomalies_pb2.AnomalyInfo.Type
GAPS = {
    _TYPE.FEATURE_TYPE_NOT_PRESENT,
    _TYPE.INVALID_FEATURE_SHAPE,  # has gaps, and had none
    _TYPE.SCHEMA_MISSING_COLUMN,
}
# A training on such data fails, or takes every value for a missing one.
_MISSING_OR_WRONG_TYPE = {
    *GAPS,
    _TYPE.UNEXPECTED_DATA_TYPE,
    _TYPE.NO_DATA_IN_SPAN,
    *(number for name, number in _TYPE.items() if name.endswith(("_NOT_INT", "_NOT_STRING", "_NOT_FLOAT", "_INT_EXPECTED"))),
}
# Somebody has set a threshold for these. A new schema does not change them.
COMPARED = {_TYPE.COMPARATOR_L_INFTY_HIGH, _TYPE.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH}


@dataclass(frozen=True)
class ValidationRules:
    """Rules for the anomalies of a run's data.

    Attributes:
      anomalies: Name of a feature, or `*` for all others -> `fail` or `warn`. Without
        an entry, missing columns, new gaps and wrong types stop a run. Distances above
        a threshold stop it in any case.
      drift: Name of a feature -> largest distance of its distribution in a split to
        that of the same split in the last run that was not stopped, from 0 to 1.
      skew: Name of a feature -> largest distance of its distribution in the split
        `train` to that in `eval`, from 0 to 1.
    """

    anomalies: Mapping[str, str] = field(default_factory=dict)
    drift: Mapping[str, float] = field(default_factory=dict)
    skew: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the rules as text, for an execution property."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "ValidationRules":
        """Reads what `to_json` has returned."""
        return cls(**json.loads(text))

    def stops(self, feature: str, kind: int) -> bool:
        """Returns True if an anomaly of a feature, or of all examples, stops a run."""
        if kind in COMPARED:
            return True
        action = self.anomalies.get(feature) or self.anomalies.get(ALL_FEATURES)
        return action == FAIL if action else kind in _MISSING_OR_WRONG_TYPE


def stopped_folder(anomalies: str) -> str:
    """Returns where the anomalies that have stopped a run are.

    TFX removes the folder of the artifact itself, `anomalies`.
    """
    return f"{anomalies.rstrip('/')}-stopped"


def with_thresholds(schema: schema_pb2.Schema, rules: ValidationRules) -> schema_pb2.Schema:
    """Returns a schema with the thresholds of drift and skew as TFDV's comparators.

    Distances are of the kind that TFDV has for the type: the largest difference between
    the shares of a value for texts, the Jensen-Shannon divergence for numbers. Source:
    https://www.tensorflow.org/tfx/data_validation/get_started#checking_data_skew_and_drift

    The thresholds of features that the schema does not have are left out.
    """
    changed = schema_pb2.Schema()
    changed.CopyFrom(schema)
    features = {feature.name: feature for feature in changed.feature}
    for kind, thresholds in (("drift", rules.drift), ("skew", rules.skew)):
        for name, threshold in thresholds.items():
            if name not in features:
                continue
            comparator = getattr(features[name], f"{kind}_comparator")
            is_text = features[name].type == schema_pb2.FeatureType.BYTES
            distance = comparator.infinity_norm if is_text else comparator.jensen_shannon_divergence
            distance.threshold = threshold
    return changed


def describe_unknown(schema: schema_pb2.Schema, rules: ValidationRules) -> list[str]:
    """Describes the features with rules that the schema does not have."""
    known = {feature.name for feature in schema.feature}
    named = (("anomalies", rules.anomalies.keys() - {ALL_FEATURES}), ("drift", rules.drift), ("skew", rules.skew))
    return [
        f"validate.{kind}: there is no feature {name!r}; there are {', '.join(sorted(known))}"
        for kind, features in named
        for name in sorted(set(features) - known)
    ]


def apply(anomalies: anomalies_pb2.Anomalies, rules: ValidationRules) -> list[tuple[str, Any]]:
    """Sets the severity of anomalies: an error if they stop a run, else a warning.

    Returns feature and reason of those that stop it.
    """
    infos = dict(anomalies.anomaly_info)
    if anomalies.HasField("dataset_anomaly_info"):
        infos[""] = anomalies.dataset_anomaly_info
    found = []
    for feature, info in sorted(infos.items()):
        reasons = [reason for reason in info.reason if rules.stops(feature, reason.type)]
        info.severity = anomalies_pb2.AnomalyInfo.ERROR if reasons else anomalies_pb2.AnomalyInfo.WARNING
        found += [(feature, reason) for reason in reasons]
    return found
