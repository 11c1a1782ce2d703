import math

from compared import outcome, unmeasured

from tfx_distribute.pipelines.compare.advice import advise


def workers(number, speed, **measured):
    return outcome(speed, number, num_workers=number, measured=measured)


def find(part, *outcomes):
    """Returns the only sentence with a part."""
    (sentence,) = [sentence for sentence in advise(outcomes, 200) if part in sentence]
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
    assert advise([outcome(1000)], 200) == []
    assert advise([unmeasured("failed", "no memory")], 200) == []
    unknown_devices = [outcome(speed, 0, seed=speed) for speed in (1000, 2000)]
    assert [sentence.partition(":")[0] for sentence in advise(unknown_devices, 200)] == ["fastest"]
