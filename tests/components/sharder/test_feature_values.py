import numpy as np
import pyarrow as pa

from tfx_distribute.components.sharder import feature_values
from tfx_distribute.trainer_module.data.shard_manifest import FeatureValues

NAN, INF = np.nan, np.inf


def test_examples_with_values_that_are_not_finite_are_counted():
    """Missing values, text and nested lists are left out."""
    first = pa.RecordBatch.from_pydict(
        {
            "x": pa.array([[1.0, NAN], None, [-2.0], [INF, NAN]], pa.large_list(pa.float32())),
            "n": pa.array([[7], [], [2**62], [-3]], pa.list_(pa.int64())),
            "text": pa.array([[b"a"], [b"b"], None, [b"c"]], pa.large_list(pa.large_binary())),
            "nested": pa.array([[[1.0]], None, None, None], pa.large_list(pa.large_list(pa.float32()))),
            "nothing": pa.nulls(4),
            "empty": pa.array([None, [], [NAN], None], pa.large_list(pa.float32())),
        }
    )
    one = feature_values.summarize(first)
    assert one == {
        "x": FeatureValues(-2.0, 1.0, 2),
        "n": FeatureValues(-3, 2**62, 0),
        "empty": FeatureValues(None, None, 1),
    }
    other = feature_values.summarize(pa.RecordBatch.from_pydict({"x": pa.array([[5.0], [-INF]], pa.list_(pa.float32()))}))
    assert feature_values.merge([one, other]) == {**one, "x": FeatureValues(-2.0, 5.0, 3)}
