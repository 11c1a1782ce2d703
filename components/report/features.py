"""Reads statistics of the data, and anomalies, from the files of TFX's components."""

import os
from collections.abc import Iterable
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from tfx_distribute.components.report.data import Anomaly, Feature, Histogram, Split

STATISTICS_FILE, ANOMALIES_FILE = "FeatureStats.pb", "SchemaDiff.pb"
MAX_TEXTS = 10  # the most frequent ones that a histogram has
_NUMBERS = {"mean": "mean", "std": "std_dev", "min": "min", "median": "median", "max": "max", "zeros": "num_zeros"}
_KINDS = {"INT": "int", "FLOAT": "float", "STRING": "text", "BYTES": "bytes", "STRUCT": "struct"}


def read_splits(folder: str) -> tuple[Split, ...]:
    """Reads statistics of all splits from an ExampleStatistics artifact's folder."""
    return tuple(to_split(name, statistics) for name, statistics in list_statistics(folder))


def list_statistics(folder: str) -> list[tuple[str, statistics_pb2.DatasetFeatureStatisticsList]]:
    """Returns name and statistics of each split, `train` first."""
    return _read_splits(folder, STATISTICS_FILE, statistics_pb2.DatasetFeatureStatisticsList)


def read_anomalies(folder: str) -> tuple[Anomaly, ...]:
    """Reads the anomalies of all splits from an ExampleAnomalies artifact's folder."""
    found = _read_splits(folder, ANOMALIES_FILE, anomalies_pb2.Anomalies)
    return tuple(anomaly for name, document in found for anomaly in to_anomalies(name, document))


def to_split(name: str, statistics: statistics_pb2.DatasetFeatureStatisticsList) -> Split:
    """Converts TFDV's statistics of a split, without those of slices."""
    dataset = statistics.datasets[0] if statistics.datasets else statistics_pb2.DatasetFeatureStatistics()
    features = tuple(_to_feature(feature, dataset.num_examples) for feature in dataset.features)
    return Split(name, dataset.num_examples, features)


def to_anomalies(split: str, anomalies: anomalies_pb2.Anomalies) -> list[Anomaly]:
    """Converts TFDV's anomalies of a split, errors first."""
    severity = anomalies_pb2.AnomalyInfo.Severity
    if anomalies.data_missing:
        return [Anomaly(split, "", "error", "no examples")]
    found = [
        Anomaly(
            split,
            feature,
            "error" if info.severity == severity.ERROR else "warning",
            info.short_description,
            info.description,
        )
        for feature, info in anomalies.anomaly_info.items()
    ]
    if anomalies.HasField("dataset_anomaly_info"):
        info = anomalies.dataset_anomaly_info
        found.append(Anomaly(split, "", "error", info.short_description, info.description))
    return sorted(found, key=lambda anomaly: (anomaly.severity, anomaly.feature))


def _to_feature(feature: statistics_pb2.FeatureNameStatistics, examples: int) -> Feature:
    kind = statistics_pb2.FeatureNameStatistics.Type.Name(feature.type)
    values: Any = getattr(feature, feature.WhichOneof("stats")) if feature.WhichOneof("stats") else None
    common = getattr(values, "common_stats", values)
    numbers: dict[str, float] = {}
    histogram = None
    if feature.HasField("num_stats"):
        statistics = feature.num_stats
        numbers = {name: float(getattr(statistics, field)) for name, field in _NUMBERS.items()}
        nan = max((histogram.num_nan for histogram in statistics.histograms), default=0)
        if nan:
            numbers["nan"] = float(nan)
        histogram = _number_histogram(statistics.histograms)
    elif feature.HasField("string_stats"):
        numbers = {"unique": float(feature.string_stats.unique)}
        buckets = feature.string_stats.rank_histogram.buckets[:MAX_TEXTS]
        if buckets:
            counts = tuple(bucket.sample_count for bucket in buckets)
            total = max(examples, getattr(common, "tot_num_values", 0))
            histogram = Histogram(counts, labels=tuple(bucket.label for bucket in buckets), total=total)
    present, missing = _count_present(common)
    return Feature(
        name=feature.name or ".".join(feature.path.step),
        kind=_KINDS.get(kind, kind.lower()),
        present=present,
        missing=missing,
        numbers=numbers if present else {},
        histogram=histogram,
    )


def _count_present(common: Any) -> tuple[float, float | None]:
    """Returns in how many examples a feature has values and in how many it has none.

    TFDV counts an empty list as not missing, and a gap of a CSV file is one.
    """
    present, missing = getattr(common, "num_non_missing", 0), getattr(common, "num_missing", 0)
    if not present or getattr(common, "min_num_values", True):
        return present, missing
    if common.max_num_values <= 1:
        return common.tot_num_values, missing + present - common.tot_num_values
    return present, None


def _number_histogram(histograms: Iterable[statistics_pb2.Histogram]) -> Histogram | None:
    standard = statistics_pb2.Histogram.HistogramType.STANDARD
    for histogram in histograms:
        if histogram.type == standard and histogram.buckets:
            edges = (histogram.buckets[0].low_value, *(bucket.high_value for bucket in histogram.buckets))
            return Histogram(tuple(bucket.sample_count for bucket in histogram.buckets), edges)
    return None


def _read_splits(folder: str, file: str, kind: Any) -> list[tuple[str, Any]]:
    """Returns name and document of each split, `train` first."""
    splits = []
    for path in fileio.glob(os.path.join(folder, "Split-*", file)):
        name = os.path.basename(os.path.dirname(path)).removeprefix("Split-")
        splits.append((name, kind.FromString(io_utils.read_bytes_file(path))))
    return sorted(splits, key=lambda split: (split[0] != "train", split[0]))
