import json
import math

from compared import comparison, outcome

from tfx_distribute.pipelines.compare import report
from tfx_distribute.pipelines.compare.comparison import FAILED, NOT_RUN, SKIPPED, Outcome


def example():
    return comparison(
        outcome(1000, 1, num_workers=1, measured={"input_share": 0.1}),
        outcome(1500, 2, num_workers=2, measured={"batch": 64, "wait_share": 0.5, "losses": ()}),
        Outcome({"strategy": "multi_worker_mirrored", "num_workers": 300}, SKIPPED, "too many"),
        Outcome({"strategy": "multi_worker_mirrored", "num_workers": 3}, FAILED, "no memory"),
        Outcome({"strategy": "multi_worker_mirrored", "num_workers": 4}, NOT_RUN),
    )


def test_table():
    table, remarks, advice = report.as_text(example()).split("\n\n")
    assert table.splitlines() == [
        "num_workers  batch  examples/s  efficiency  input  peers  loss  to the loss  machine h/M  warm-up",
        "1               32       1,000        1.00   10 %      -  0.25            -        0.278    3.0 s",
        "2               64       1,500        0.75      -   50 %     -            -        0.370    3.0 s".replace(
            "0.370", " 0.37"
        ),
        "300          skipped",
        "3            failed",
        "4            not run",
    ]
    assert remarks.splitlines() == ["skipped: num_workers=300: too many", "failed: num_workers=3: no memory"]
    assert all(line.startswith("* ") for line in advice.splitlines())


def test_nothing_measured():
    text = report.as_text(comparison(Outcome({"seed": 1}, FAILED, "no memory")))
    assert text.splitlines()[1:] == ["failed", "", "failed: mine: no memory"]


def test_document_has_the_same_keys_for_each_combination():
    document = report.as_document(example())
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    combinations = document["combinations"]
    assert len({tuple(each) for each in combinations}) == 1
    assert [each["status"] for each in combinations] == ["measured", "measured", "skipped", "failed", "not_run"]
    assert combinations[1]["scaling_base"] == 0
    assert combinations[3]["examples_per_second"] is None


def test_numbers_that_json_does_not_have_are_null():
    result = comparison(outcome(1000, rate=math.inf, measured={"input_share": math.nan}))
    (combination,) = json.loads(json.dumps(report.as_document(result), allow_nan=False))["combinations"]
    assert (combination["parameters"]["rate"], combination["input_share"]) == (None, None)


def test_the_document_is_described(request):
    text = (request.config.rootpath / "docs" / "scaling.md").read_text()
    document = report.as_document(example())
    for name in [*document, *document["machine"], *document["combinations"][0]]:
        assert f"`{name}`" in text, name
