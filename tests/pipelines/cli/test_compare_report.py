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


def workers(number, speed, **measured):
    return outcome(speed, number, num_workers=number, measured=measured)


def find(part, *outcomes):
    """Returns the only sentence with a part."""
    (sentence,) = [sentence for sentence in compare_report.advise(outcomes, 200) if part in sentence]
    return sentence


def test_what_trainings_wait_for():
    slowest = "worker-0 holds the others back for 40 % of the time: it reads a slow disk"
    outcomes = workers(1, 1000, input_share=0.5), workers(8, 3700, wait_share=0.45, slowest=slowest)
    assert find("peers", *outcomes) == (
        f"num_workers=8 waits for peers in 45% of a step: try a larger per_replica_batch_size; {slowest}"
    )
    assert "num_workers=1 waits for examples in 50% of a step: more devices" in find("cache", *outcomes)
    assert "does not show how the training scales over machines" in find("all processes ran on this machine", *outcomes)


def test_the_fastest_has_not_diverged():
    trainings = [outcome(1000, seed=1), outcome(2000, seed=2, measured={"loss": math.nan}), outcome(960, seed=3)]
    assert find("fastest", *trainings) == "fastest: seed=1, 1,000 examples/s; as fast within 5%: seed=3"


def test_short_measurements_are_not_trusted():
    assert find("--train-steps", outcome(1000, measured={"seconds": 0.032})) == (
        "the steps of the training were measured for 0.032 s only; for speeds to rely on, write --train-steps 30000"
    )


def test_nothing_to_say():
    assert compare_report.advise([outcome(1000)], 200) == []
    assert compare_report.advise([unmeasured("failed", "no memory")], 200) == []
    unknown_devices = [outcome(speed, 0, seed=speed) for speed in (1000, 2000)]
    assert [sentence.partition(":")[0] for sentence in compare_report.advise(unknown_devices, 200)] == ["fastest"]
