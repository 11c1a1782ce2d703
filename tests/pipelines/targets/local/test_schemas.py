"""Tests which schema is proposed for the data of a run."""

import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from tfx_distribute.components.report.data import Artifact
from tfx_distribute.components.report.features import STATISTICS_FILE
from tfx_distribute.pipelines.targets.local import runs, schemas
from tfx_distribute.trainer_module.errors import ConfigurationError

GOOD = {"count": [1, 2, 3, 4] * 10, "city": ["rome", "oslo"] * 20}


def make_statistics(columns):
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns), n_jobs=1)


@pytest.fixture
def propose(tmp_path):
    """Returns a function that proposes a schema for columns, on top of that of GOOD."""

    def call(columns):
        folder = tmp_path / "statistics" / "Split-train"
        folder.mkdir(parents=True)
        (folder / STATISTICS_FILE).write_bytes(make_statistics(columns).SerializeToString())
        info = Artifact("StatisticsGen", "statistics", "ExampleStatistics", 1, str(folder.parent))
        run = runs.Run("1", "mine", tmp_path, "stopped", 0.0, 1.0, (), (info,))
        curated = text_format.MessageToString(tfdv.infer_schema(make_statistics(GOOD)))
        text = schemas.propose(run, curated)
        schema = text_format.Parse(text, schema_pb2.Schema())
        anomalies = tfdv.validate_statistics(make_statistics(columns), schema)
        assert not anomalies.anomaly_info, "it agrees with the data"
        return {feature.name: feature for feature in schema.feature}, schema

    return call


def test_new_texts_and_columns_are_added(propose):
    features, schema = propose({**GOOD, "city": ["rome", "paris"] * 20, "new": [1.5] * 40})
    assert list(schema.string_domain[0].value) == ["oslo", "rome", "paris"]
    assert features["new"].type == schema_pb2.FLOAT


@pytest.mark.parametrize(("values", "kind"), [([1.5, 2.5] * 20, schema_pb2.FLOAT), (["1,5", "2,5"] * 20, schema_pb2.BYTES)])
def test_a_column_of_another_type_is_described_anew(propose, values, kind):
    features, _ = propose({**GOOD, "count": values})
    assert (features["count"].type, features["count"].lifecycle_stage) == (kind, schema_pb2.UNKNOWN_STAGE)


def test_a_column_that_is_gone_is_taken_out(propose):
    features, schema = propose({"count": GOOD["count"]})
    assert list(features) == ["count"]
    assert not schema.string_domain


def test_a_column_with_gaps_may_have_some(propose):
    features, _ = propose({**GOOD, "city": ["rome", None] * 20})
    assert features["city"].presence.min_fraction < 1


def test_runs_without_a_schema_or_statistics(tmp_path):
    run = runs.Run("1", "mine", tmp_path, "failed", 0.0, 1.0, ())
    with pytest.raises(ConfigurationError, match="^RUN: 1 has no statistics"):
        schemas.propose(run, None)
    with pytest.raises(ConfigurationError, match="^RUN: 1 has no schema"):
        schemas.read(run)
