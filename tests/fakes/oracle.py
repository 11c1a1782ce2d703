"""Compares models that are trained with Keras's `fit` and with the loop.

    python tests/fakes/oracle.py --keras 2 --cells default mirrored:dense,embedding
    python tests/fakes/oracle.py --keras 2 --update

Both see the same examples in the same order. Imports TensorFlow once, forks a process
for each task of each strategy, and writes one JSON object: for each cell
`kind/strategy`, the largest differences, the reason of a refusal, or the error.
Without `--cells`, these are all kinds under all strategies of that Keras. `--update`
writes the verdicts for the installed TFX to tests/expected/models.json, and
docs/models.md.

The loop trains each cell twice:

* First with any number of steps in each TensorFlow call. Training fails at the end of
  the second epoch.
* Then with one step in each call, because a callback has batch hooks. Training resumes
  from the saved state, in the middle of the second epoch, with a new model.

With `--resumed`, this is so for some kinds; others are trained to the end the first
time.
"""

import argparse
import faulthandler
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import kind_exceptions
from oracle_outcomes import ROLES, SERVED, has_fixed_batches, reference_name
from running import free_ports

LIMIT_SECONDS = 800.0  # for all cells of a strategy


def fork(function, *arguments) -> int:
    """Runs a function in a forked process; returns the process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        function(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(pids: list[int], seconds: float = LIMIT_SECONDS) -> None:
    """Waits for the first of several forked processes, and then for the others.

    Kills those that still run after the time limit, or ten seconds after the first.
    """
    deadline = time.monotonic() + seconds
    pids, first = list(pids), pids[0]
    while pids and time.monotonic() < deadline:
        pids = [pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]]
        if first not in pids:
            deadline = min(deadline, time.monotonic() + 10)
        time.sleep(0.05)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keras", type=int, default=2, choices=(2, 3))
    parser.add_argument("--cells", nargs="+", help="strategies, each with a colon and kinds, or all kinds without")
    parser.add_argument("--resumed", nargs="+", help="kinds whose training is interrupted and resumed; all by default")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="most seconds for each strategy")
    parser.add_argument("--out", help="file for the outcomes; standard output shows them too")
    parser.add_argument("--update", action="store_true", help="write the verdicts and docs/models.md")
    arguments = parser.parse_args()
    from tfx_distribute.trainer_module.job.training_job import keras_environment

    os.environ.update(keras_environment(arguments.keras), TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    sys.path.insert(0, str(Path(__file__).parent))
    from tfx_distribute.trainer_module import garbage_collection

    with garbage_collection.paused():  # once, before the forks, as in the fork server
        import oracle_table
        import tensorflow as tf

        from tfx_distribute.trainer_module import process
        from tfx_distribute.trainer_module.keras import autograph

        _ = process
        autograph.exempt_libraries()  # as in a training process, before the import of a user's module
        import kinds
        import oracle_cells

    faulthandler.register(signal.SIGUSR1)
    tf.get_logger().setLevel("ERROR")  # suppresses warnings about retracing: each training traces its own functions
    cells = {}
    for cell in arguments.cells or oracle_table.strategies(arguments.keras):
        strategy, _, names = cell.partition(":")
        cells[strategy] = names.split(",") if names else kinds.KINDS
    references = {
        reference_name(kind, has_fixed_batches(kind, strategy)): (
            kind_exceptions.REFERENCES.get(kind, kind),
            has_fixed_batches(kind, strategy),
        )
        for strategy, names in cells.items()
        for kind in names
        if kind not in kind_exceptions.NOISY and strategy != SERVED
    }
    results = {}
    with tempfile.TemporaryDirectory(prefix="oracle-") as name:
        folder = Path(name)
        data = write_examples_in_fork(folder)
        started = time.monotonic()
        wait([fork(oracle_cells.run_fit, arguments.keras, list(references.values()), data, folder)], arguments.limit)
        print(f"{time.monotonic() - started:.1f} s", len(references), "trainings with fit", flush=True)
        for strategy, names in cells.items():
            ports = free_ports(len(ROLES.get(strategy, ())))
            task = (arguments.keras, arguments.resumed or kinds.KINDS, strategy, names, data, folder, ports)
            wait([fork(oracle_cells.run_task, *task, index) for index in range(len(ports) or 1)], arguments.limit)
            results_file = folder / f"{strategy}.json"
            results.update(json.loads(results_file.read_text()) if results_file.exists() else {})
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(results, indent=1))
    if arguments.update:
        oracle_table.update(arguments.keras, {cell: outcome["verdict"] for cell, outcome in results.items()})


def write_examples_in_fork(folder: Path):
    """Calls `write_examples` in a forked process.

    Later forks need a TensorFlow that has not run any operation in this one.
    """
    from oracle_examples import write_examples
    from pydantic import TypeAdapter

    from tfx_distribute.trainer_module.job.training_job import TrainingData

    adapter = TypeAdapter(TrainingData)
    wait([fork(lambda: (folder / "data.json").write_bytes(adapter.dump_json(write_examples(folder))))])
    return adapter.validate_json((folder / "data.json").read_bytes())


if __name__ == "__main__":
    main()
