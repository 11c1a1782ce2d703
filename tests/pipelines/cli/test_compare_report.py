import json
import math

from compared import outcome, unmeasured

from tfx_distribute.pipelines.cli import compare_report


def example():
    return [
        outcome(1000, 1, num_workers=1, measured={"input_share": 0.1, "loss": math.nan}),
        outcome(1500, 2, num_workers=2, measured={"batch": 64, "wait_share": 0.5, "loss": None}),
        unmeasured("skipped", "too many", num_workers=300),
        unmeasured("failed", "no memory", num_workers=3),
        unmeasured("not run", "", num_workers=4),
    ]


def test_table():
    table, reasons, advice = compare_report.as_text(example(), 200).split("\n\n")
    assert table.splitlines() == [
        "num_workers  batch    examples/s  efficiency  input  peers  loss",
        "1            32       1,000       1.00        10%    -      nan",
        "2            64       1,500       0.75        -      50%    -",
        "300          skipped",
        "3            failed",
        "4            not run",
    ]
    assert reasons.splitlines() == ["skipped: num_workers=300: too many", "failed: num_workers=3: no memory"]
    assert all(line.startswith("* ") for line in advice.splitlines())


def test_nothing_measured():
    text = compare_report.as_text([unmeasured("failed", "no memory")], 200)
    assert text.splitlines()[1:] == ["failed", "", "failed: the training: no memory"]


def test_document(request):
    document = compare_report.as_document("mine", example(), 200)
    combinations = document["combinations"]
    assert len({tuple(each) for each in combinations}) == 1
    assert [each["status"] for each in combinations] == ["measured", "measured", "skipped", "failed", "not run"]
    assert [each["efficiency"] for each in combinations] == [1.0, 0.75, None, None, None]
    assert json.loads(json.dumps(document))["combinations"][3]["examples_per_second"] is None
    text = (request.config.rootpath / "docs" / "scaling.md").read_text()
    for name in [*document, *combinations[0]]:
        assert f"`{name}`" in text, name
