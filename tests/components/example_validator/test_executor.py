"""Tests which data stop a run."""

from pathlib import Path

import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from tfx.types import artifact_utils, standard_artifacts

from tfx_distribute.components.example_validator import executor
from tfx_distribute.components.example_validator.rules import FAIL, STOPPED, WARN, ValidationRules, stopped_folder
from tfx_distribute.components.report import features
from tfx_distribute.trainer_module.errors import ConfigurationError

GOOD = {"fare": [1.5, 2.5, 3.5, 4.5] * 10, "city": ["rome", "oslo"] * 20}
LATER = {"fare": [value + 3 for value in GOOD["fare"]], "city": ["rome", "rome", "rome", "oslo"] * 10}


def write_statistics(folder, **splits):
    artifact = standard_artifacts.ExampleStatistics()
    artifact.uri, artifact.split_names = str(folder), artifact_utils.encode_split_names(list(splits))
    for name, columns in splits.items():
        statistics = tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns), n_jobs=1)
        path = folder / f"Split-{name}" / features.STATISTICS_FILE
        path.parent.mkdir(parents=True)
        path.write_bytes(statistics.SerializeToString())
    return artifact


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    """Returns the schema of GOOD, as an artifact."""
    inferred = tfdv.infer_schema(tfdv.generate_statistics_from_dataframe(pd.DataFrame(GOOD), n_jobs=1))
    artifact = standard_artifacts.Schema()
    artifact.uri = str(tmp_path_factory.mktemp("schema"))
    tfdv.write_schema_text(inferred, f"{artifact.uri}/schema.pbtxt")
    return artifact


@pytest.fixture
def validate(schema, tmp_path):
    """Returns a function that runs the executor, and returns its result and output."""
    runs = iter(range(100))

    def run(rules=None, baseline=None, stop=1, **splits):
        folder = tmp_path / str(next(runs))
        output = standard_artifacts.ExampleAnomalies()
        output.uri = str(folder / "anomalies")
        inputs = {"statistics": [write_statistics(folder / "statistics", **splits)], "schema": [schema]}
        inputs |= {"baseline": [baseline]} if baseline else {}
        properties = {"rules": (rules or ValidationRules()).to_json(), "stop_on_anomalies": stop}
        result = executor.Executor().Do(inputs, {"anomalies": [output]}, properties)
        return result.execution_result, output

    return run


def test_data_that_agree_with_the_schema(validate):
    result, output = validate(train=GOOD, eval=GOOD)
    assert result.code == 0
    assert output.get_json_value_custom_property("blessed") == {"train": 1, "eval": 1}
    assert features.read_anomalies(output.uri) == ()
    assert [split.name for split in features.read_splits(output.uri)] == ["train", "eval"], "for the next run"


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"fare": GOOD["fare"]}, "city (train): Column is completely missing"),
        ({**GOOD, "fare": ["1,5"] * 40}, "fare (train): Expected data of type: FLOAT but got STRING"),
        ({**GOOD, "fare": [1] * 40}, "fare (train): Expected data of type: FLOAT but got INT"),
        ({**GOOD, "city": ["rome", None] * 20}, "city (train): The feature has a shape, but it's not always present"),
    ],
)
def test_missing_columns_and_wrong_types_stop_a_run(validate, train, message):
    result, output = validate(train=train, eval=GOOD)
    assert result.code == STOPPED
    assert result.result_message.splitlines()[1].strip().startswith(message)
    assert ("data.require" in result.result_message) == ("Expected data" not in message), "it helps against gaps alone"
    kept = features.read_anomalies(stopped_folder(output.uri))
    assert {(anomaly.split, anomaly.severity) for anomaly in kept} == {("train", "error")}


def test_an_empty_split_is_refused(validate):
    with pytest.raises(ConfigurationError, match="^examples: the split 'eval' is empty; give it a larger share"):
        validate(stop=0, train=GOOD, eval={name: values[:0] for name, values in GOOD.items()})


def test_other_anomalies_are_shown_and_stop_a_run_if_it_says_so(validate):
    new = {**GOOD, "city": ["rome", "paris"] * 20}
    result, output = validate(train=new, eval=GOOD)
    assert result.code == 0
    assert [anomaly.feature for anomaly in features.read_anomalies(output.uri)] == ["city"]
    for anomalies in ({"city": FAIL}, {"*": FAIL}):
        result, _ = validate(ValidationRules(anomalies), train=new, eval=GOOD)
        assert "city (train): Examples contain values missing from the schema: paris (~50%)." in result.result_message
    assert validate(ValidationRules({"*": FAIL, "city": WARN}), train=new, eval=GOOD)[0].code == 0
    assert validate(ValidationRules({"city": WARN}), train={"fare": GOOD["fare"]}, eval=GOOD)[0].code == 0
    assert {anomaly.severity for anomaly in features.read_anomalies(output.uri)} == {"warning"}


def test_drift_since_the_last_run_that_was_not_stopped(validate):
    rules = ValidationRules(drift={"fare": 0.1, "city": 0.2})
    first, baseline = validate(rules, train=GOOD, eval=GOOD)
    assert first.code == 0, "there is nothing to compare it with"
    assert validate(rules, baseline, train=GOOD, eval=GOOD)[0].code == 0
    drifted, _ = validate(rules, baseline, train=LATER, eval=GOOD)
    city, fare = drifted.result_message.splitlines()[1:3]
    assert city.strip().startswith("city (train): The Linfty distance between current and previous is 0.25 ")
    assert fare.strip().startswith(
        "fare (train): The approximate Jensen-Shannon divergence between current and previous is "
    )
    accepted, new_baseline = validate(rules, baseline, stop=0, train=LATER, eval=GOOD)
    assert accepted.code == 0
    assert validate(rules, new_baseline, train=LATER, eval=GOOD)[0].code == 0, "it is compared with what was accepted"
    assert validate(rules, new_baseline, train=LATER)[0].code == 0, "a split that one of the runs does not have"


def test_skew_between_train_and_eval(validate):
    assert validate(train=LATER, eval=GOOD)[0].code == 0
    result, _ = validate(ValidationRules(skew={"city": 0.2}), train=LATER, eval=GOOD)
    assert "city (train): The Linfty distance between training and serving is 0.25 " in result.result_message
    assert "schema accept" not in result.result_message, "which would not help"
    new = {**LATER, "city": [*LATER["city"][:-1], "paris"]}
    result, _ = validate(ValidationRules({"city": FAIL}, skew={"city": 0.2}), train=new, eval=GOOD)
    assert "with `tfx-distribute schema accept`, and let one run pass with" in result.result_message
    result, _ = validate(ValidationRules({"*": WARN}, skew={"city": 0.2}), train=LATER, eval=GOOD)
    assert result.code == STOPPED, "thresholds count in any case"


def test_a_threshold_for_a_feature_that_is_not_there(validate):
    result, _ = validate(ValidationRules(drift={"fares": 0.1}), train=GOOD)
    assert "validate.drift: there is no feature 'fares'; there are city, fare" in result.result_message
    result, _ = validate(ValidationRules({"fares": WARN, "*": FAIL}), train=GOOD)
    assert "validate.anomalies: there is no feature 'fares'; there are city, fare" in result.result_message


def test_thresholds_of_the_schema_itself_count(validate, schema):
    file = Path(schema.uri, "schema.pbtxt")
    before = file.read_text()
    comparator = "skew_comparator { infinity_norm { threshold: 0.2 } }"
    file.write_text(before.replace('name: "city"', f'name: "city" {comparator}', 1))
    result, _ = validate(train=LATER, eval=GOOD)
    file.write_text(before)
    assert "city (train): The Linfty distance between training and serving is 0.25 " in result.result_message
