"""Tests reading statistics and anomalies of the data."""

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2

from tfx_distribute.components.report import features
from tfx_distribute.components.report.data import Anomaly, Feature, Histogram

STATISTICS = """
datasets {
  num_examples: 10
  features {
    path { step: "fare" } type: FLOAT
    num_stats {
      common_stats { num_non_missing: 8 num_missing: 2 min_num_values: 1 max_num_values: 1 tot_num_values: 8 }
      mean: 2 std_dev: 0.5 num_zeros: 1 min: 0 median: 2 max: 4
      histograms { type: QUANTILES num_nan: 3 buckets { low_value: 0 high_value: 4 sample_count: 8 } }
      histograms {
        buckets { low_value: 0 high_value: 2 sample_count: 3 } buckets { low_value: 2 high_value: 4 sample_count: 5 }
      }
    }
  }
  features {
    path { step: "<b>" } type: STRING
    string_stats {
      common_stats { num_non_missing: 10 max_num_values: 1 tot_num_values: 8 } unique: 20
      rank_histogram { buckets { label: "a" sample_count: 5 } buckets { label: "b" sample_count: 1 } }
    }
  }
}
"""


def test_statistics():
    split = features.to_split("train", text_format.Parse(STATISTICS, statistics_pb2.DatasetFeatureStatisticsList()))
    assert (split.name, split.examples) == ("train", 10)
    assert split.features == (
        Feature(
            "fare",
            "float",
            8,
            2,
            {"mean": 2, "std": 0.5, "min": 0, "median": 2, "max": 4, "zeros": 1, "nan": 3},
            Histogram((3, 5), (0, 2, 4)),
        ),
        Feature("<b>", "text", 8, 2, {"unique": 20}, Histogram((5, 1), labels=("a", "b"), total=10)),
    )
    assert split.features[1].histogram.shares == (0.5, 0.1), "of all examples, not only of those with these texts"
    assert features.to_split("eval", statistics_pb2.DatasetFeatureStatisticsList()).features == ()


def test_anomalies_of_all_splits(tmp_path):
    anomalies = anomalies_pb2.Anomalies()
    anomalies.anomaly_info["tips"].severity = anomalies_pb2.AnomalyInfo.WARNING
    anomalies.anomaly_info["tips"].short_description = "Out-of-range values"
    anomalies.anomaly_info["fare"].severity = anomalies_pb2.AnomalyInfo.ERROR
    anomalies.anomaly_info["fare"].short_description = "Column dropped"
    for split, document in (("train", anomalies_pb2.Anomalies(data_missing=True)), ("eval", anomalies)):
        folder = tmp_path / f"Split-{split}"
        folder.mkdir()
        (folder / features.ANOMALIES_FILE).write_bytes(document.SerializeToString())
    assert features.read_anomalies(str(tmp_path)) == (
        Anomaly("train", "", "error", "no examples"),
        Anomaly("eval", "fare", "error", "Column dropped"),
        Anomaly("eval", "tips", "warning", "Out-of-range values"),
    )
