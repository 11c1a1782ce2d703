import dataclasses

import pytest
from compared import comparison, outcome

from tfx_distribute.pipelines.compare.advice import advise
from tfx_distribute.pipelines.compare.comparison import FAILED, Outcome
from tfx_distribute.pipelines.compare.measurement import LossPoint

LONG = {"steps": 2001}  # measured for longer than two seconds


def workers(number, speed, **measured):
    return outcome(speed, number, num_workers=number, measured=LONG | measured)


def find(comparison, part):
    """Returns the only sentence with a part."""
    (sentence,) = [sentence for sentence in advise(comparison) if part in sentence]
    return sentence


def test_how_many_workers_still_pay():
    result = comparison(workers(1, 1000), workers(2, 1900), workers(4, 3300), workers(8, 3700, wait_share=0.45))
    assert find(result, "still pays") == "num_workers=4 still pays: 0.82 of the speed per device of num_workers=1"
    assert find(result, "times as fast as") == (
        "num_workers=8 is 1.12 times as fast as num_workers=4, with 2 times the devices: 45 % of a step waits for peers; "
        "write a larger per_replica_batch_size"
    )


def test_two_workers_are_slower_than_one():
    result = comparison(workers(1, 1000), workers(2, 920, wait_share=0.61), cores=2, num_gpus=0)
    assert find(result, "reaches") == (
        "num_workers=2 reaches 0.92 of the speed of num_workers=1: 2 processes share 2 cores; 61 % of a step waits for "
        "peers; write a larger per_replica_batch_size"
    )
    assert "does not show how the training scales over machines" in find(result, "all processes ran on this machine")
    assert not [sentence for sentence in advise(result) if "still pays" in sentence]


def test_strong_scaling_names_the_batch_that_is_left():
    # The asked batch is the same; that of a replica follows from the number of workers.
    eight = dataclasses.replace(workers(8, 1100, wait_share=0.7), per_replica_batch_size=4)
    sentence = find(comparison(workers(1, 1000), eight, scaling="strong"), "1.10 times")
    assert sentence.endswith("write a larger per_replica_batch_size (of a replica it is only 4 here)")


@pytest.mark.parametrize(("speed", "spread"), [(1040, 0.05), (1300, 0.3), (960, 0.05)])
def test_speeds_that_differ_by_less_than_they_vary_are_equal(speed, spread):
    result = comparison(workers(1, 1000), workers(2, speed, spread=spread))
    assert find(
        result, "num_workers=2 is as fast as num_workers=1, within what speeds vary; the measured times do not say why"
    )
    assert "as fast, within what speeds vary: num_workers=" in find(result, "fastest")


def test_the_slowest_process_and_waiting_for_examples_are_reasons():
    slowest = "worker-0 holds the others back for 40 % of the time: it reads a slow disk"
    result = comparison(workers(1, 1000), workers(2, 1100, slowest=slowest, input_share=0.5, wait_share=0.1))
    assert find(result, "1.10 times").endswith(f": {slowest}; 50 % of a step waits for examples")
    assert "num_workers=2 waits for examples in 50 % of a step: a faster model" in find(result, "a faster model")


def test_short_steps_wait_for_examples_in_small_batches():
    result = comparison(outcome(64_000, measured={"steps": 5001, "input_share": 0.5}))
    assert "a step takes only 0.5 ms, so try a larger per_replica_batch_size, or look at augment" in advise(result)[0]


def test_what_a_strategy_costs():
    single = outcome(2000, 1, strategy="one_device", measured=LONG)
    assert find(comparison(single, outcome(900, 1, measured=LONG)), "on 1 device") == (
        "multi_worker_mirrored reaches 0.45 of the speed of one_device on 1 device"
    )


def test_which_batch():
    def batch(size, speed, seconds):
        point = LossPoint(50, seconds, 0.5)
        return outcome(speed, measured=LONG | {"batch": size, "losses": (point,)}, per_replica_batch_size=size)

    result = comparison(batch(32, 1000, 4.0), batch(64, 1800, 3.0), batch(128, 3000, 5.0), batch(256, 3100, 9.0))
    sentences = [sentence for sentence in advise(result) if "examples per second" in sentence]
    assert sentences == [
        "per_replica_batch_size=64 trains 1.80 times the examples per second of per_replica_batch_size=32, and reaches the "
        "loss sooner (3 s instead of 4 s)",
        "per_replica_batch_size=128 trains 1.67 times the examples per second of per_replica_batch_size=64, and reaches the "
        "loss not sooner (5 s instead of 3 s)",
    ]
    assert "per_replica_batch_size=64, after 3 s and 50 steps" in find(result, "first at a loss of 0.5")


def test_a_loss_that_was_not_reached_is_said():
    result = comparison(workers(1, 1000), workers(2, 1900), target_loss=0.01)
    assert find(result, "not at a loss") == "not at a loss of 0.01 within the steps: num_workers=1, num_workers=2"


def test_short_measurements_are_not_trusted():
    result = comparison(outcome(100_000))
    assert find(result, "--train-steps") == (
        "the steps of mine were measured for 0.032 s only; for speeds to rely on, write --train-steps 20000"
    )


def test_unknown_devices_and_single_trainings_get_no_advice_on_scaling():
    assert advise(comparison(outcome(1000, 1, measured=LONG))) == ()
    one, two = (outcome(speed, 0, processes=1, seed=speed, measured=LONG) for speed in (1000, 2000))
    assert not [sentence for sentence in advise(comparison(one, two)) if "pays" in sentence or "reaches" in sentence]


def test_nothing_measured_nothing_said():
    assert advise(comparison(Outcome({}, FAILED, "no memory"))) == ()
