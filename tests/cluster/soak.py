"""Injects random faults into trainings on a cluster, and shows the results.

    python tests/cluster/soak.py [--faults N] [--seed N]

Each training is a run of the digits whose Trainer starts a JobSet, on two workers or
with a parameter server; there are two at a time. While it trains, something happens
once:

* delete, evict: to a pod of the training
* stop: all processes of such a pod are stopped, for longer than a heartbeat may take
* network: such a pod, or that of the Trainer's step, has no network for some seconds
* step: the pod of the Trainer's step is deleted
* controller: the pod that makes the pods of trainings is deleted

Exits with 1 if a training did not end like an undisturbed one: all steps, one model
that is pushed, no more training steps lost than there are between two saves, and
nothing left in the cluster or on the volume.

`KUBECONFIG`, `IMAGE` and `STORAGE_CLASS` are those of the tests in this folder.
"""

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))

import real_cluster
from digits_on_cluster import SERVING, TRAINING, TWO_WORKERS, Installation, install, model
from kubeflow_pipelines import Step
from pod_faults import RunningTraining, cut_network, delete_controller, evict, stop
from real_cluster import wait_until
from step_pods import LogKeeper

from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS
from tfx_distribute.trainer_module.reporting import history

EVERY = 40  # training steps between two saves
HEARTBEAT_SECONDS = 10
KIND = JOB_KINDS["jobset"]
FAULTS = ("delete", "evict", "stop", "network", "step", "controller")
STRATEGIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "multi_worker_mirrored": ({**TWO_WORKERS, "epochs": 40}, ("chief", "worker")),
    "parameter_server": (
        {"strategy": "parameter_server", "num_workers": 1, "num_parameter_servers": 1, "epochs": 10},
        ("chief", "worker", "ps"),
    ),
}
KEPT_FILES = ["followed.json", "job.json", "outputs", "training_result.json"]  # for a day


@dataclass(frozen=True)
class Fault:
    """A fault, and the training that it happens to.

    Attributes:
      number: Number of the training, which is its seed.
      strategy: Its strategy.
      kind: One of `FAULTS`.
      target: Role of the pod that is struck: also `step` and `controller`.
      progress: Part of the training after which it happens.
      seconds: How long it takes, for those that end by themselves.
    """

    number: int
    strategy: str
    kind: str
    target: str
    progress: float
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=30, help="trainings that are struck")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6, help="of what strikes where and when")
    options = parser.parse_args()
    faults = draw(options.faults, options.seed)
    image = os.environ.get("IMAGE", "registry.example.com/team/digits:1")
    storage_class = os.environ.get("STORAGE_CLASS", "")
    print(f"{options.faults} faults, seed {options.seed}\n")
    with (
        tempfile.TemporaryDirectory() as folder,
        real_cluster.namespace(real_cluster.connect(), image, Path(folder), storage_class) as namespace,
        install(namespace, Path(folder) / "digits") as installation,
    ):
        expected = {name: train_undisturbed(installation, name) for name in {fault.strategy for fault in faults}}

        def strike_one(fault: Fault) -> str:
            with installation.beside() as own:
                return train(own, fault, expected[fault.strategy])

        with ThreadPoolExecutor(2) as threads:
            outcomes = list(threads.map(strike_one, faults))
        wrong = find_leftovers(installation, len(faults) + len(expected))
    failed = Counter(fault.kind for fault, outcome in zip(faults, outcomes, strict=True) if outcome)
    print()
    for name, count in sorted(Counter(fault.kind for fault in faults).items()):
        print(f"{name:<9} {count - failed[name]} of {count} ended as if undisturbed")
    print("\n".join(["", *wrong]) if wrong else "nothing is left")
    return 1 if wrong or failed else 0


def draw(count: int, seed: int) -> list[Fault]:
    """Returns random faults, about as many of each kind."""
    choose = random.Random(seed)  # noqa: S311 (no secret)
    drawn = [FAULTS[number % len(FAULTS)] for number in range(count)]
    choose.shuffle(drawn)
    faults = []
    for number, kind in enumerate(drawn, start=1):
        strategy = choose.choice(["multi_worker_mirrored", "multi_worker_mirrored", "parameter_server"])
        roles = (*STRATEGIES[strategy][1], *(["step"] if kind == "network" else []))
        target = kind if kind in ("step", "controller") else choose.choice(roles)
        seconds = choose.uniform(2, 4) * HEARTBEAT_SECONDS if kind == "stop" else choose.uniform(0.2, 3) * HEARTBEAT_SECONDS
        faults.append(Fault(number, strategy, kind, target, choose.uniform(0.05, 0.6), seconds))
    return faults


def train_undisturbed(installation: Installation, strategy: str) -> int:
    """Trains without a fault; returns the number of training steps."""
    began = time.monotonic()
    run = installation.run(KIND.name, "evaluate", **parameters(strategy), seed=0)
    steps = int(model(run)["train_steps"])
    print(f"{strategy}, undisturbed: {steps} training steps, {time.monotonic() - began:.0f} s", flush=True)
    return steps


def parameters(strategy: str) -> dict[str, Any]:
    return {
        **STRATEGIES[strategy][0],
        "save_checkpoints_secs": 0,
        "save_checkpoints_steps": EVERY,
        "heartbeat_timeout_secs": HEARTBEAT_SECONDS,
    }


def train(installation: Installation, fault: Fault, expected_steps: int) -> str:
    """Trains with a fault; returns what went wrong, and prints it."""
    began, wrong, namespace = time.monotonic(), [], installation.namespace
    struck_at: list[int] = []
    pods: list[str] = []  # of the step, which has a second one after a fault

    def find_chiefs() -> list[str]:
        return [pod.metadata.name for step in pods[-1:] for pod in RunningTraining(namespace, KIND, step).pods("chief")]

    log = LogKeeper(namespace, find_chiefs)

    def strike_trainer(step: Step, pod: str) -> None:
        if step.name != "Trainer":
            return
        pods.append(pod)
        if len(pods) > 1:
            return
        after = int(fault.progress * expected_steps)
        wait_until(lambda: any(last >= after for _, last in find_attempts(log)), 400)
        struck_at.append(find_attempts(log)[-1][1])
        strike(RunningTraining(namespace, KIND, pod), fault)

    with log:
        try:
            run = installation.run_and_strike(
                KIND.name, "evaluate", strike=strike_trainer, **parameters(fault.strategy), seed=fault.number
            )
            if (steps := int(model(run)["train_steps"])) != expected_steps:
                wrong.append(f"{steps} steps instead of {expected_steps}")
            if run.outputs["Pusher"]["pushed_model"]["metadata"].get("pushed") != 1:
                wrong.append("not pushed")
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {str(error).strip()[-1500:]}")
    attempts = find_attempts(log)
    lost = max([0, *(last - first for (_, last), (first, _) in itertools.pairwise(attempts))])
    if not struck_at:
        wrong.append("was not struck")
    if lost > EVERY:
        wrong.append("too many steps lost")
    wrong += find_left_in_cluster(installation, pods)
    outcome = f"steps of chiefs {attempts}, {lost} lost, {time.monotonic() - began:.0f} s"
    print(f"{fault}, struck at {struck_at}: {outcome}: {'; '.join(wrong) or 'as if nothing had been'}", flush=True)
    return "; ".join(wrong)


def find_attempts(log: LogKeeper) -> list[tuple[int, int]]:
    """Returns the first and last training step of each chief that trained."""
    attempts = []
    for text in list(log.texts.values()):
        reports = history.parse(text.splitlines())
        continued = [report.message for report in reports if report.message.startswith("continues after")]
        steps = [report.step for report in reports if report.phase != "start"]
        if steps:
            attempts.append((int(continued[0].rpartition(" ")[2]) if continued else 0, max(steps)))
    return attempts


def strike(training: RunningTraining, fault: Fault) -> None:
    namespace = training.namespace
    if fault.kind == "controller":
        delete_controller(namespace)
        return
    pod = namespace.pod(training.step) if fault.target == "step" else training.running(fault.target)
    if fault.kind in ("delete", "step"):
        namespace.delete_pod(pod.metadata.name, grace_seconds=30)
    elif fault.kind == "evict":
        evict(namespace, pod.metadata.name)
    elif fault.kind == "stop":
        stop(namespace, pod, fault.seconds)
    else:
        cut_network(namespace, pod, fault.seconds)


def find_left_in_cluster(installation: Installation, pods: list[str]) -> list[str]:
    """Returns what a run leaves in the cluster when it is deleted."""
    trainings = [RunningTraining(installation.namespace, KIND, pod) for pod in pods]
    names = [job["metadata"]["name"] for training in trainings for job in training.jobs()]
    wrong = [] if len(names) == 1 else [f"the step owns {len(names)} jobs"]
    for pod in pods:
        installation.namespace.delete_pod(pod, grace_seconds=0)

    def left() -> list[str]:
        return [
            *(job["metadata"]["name"] for training in trainings for job in training.jobs()),
            *(pod.metadata.name for name in names for pod in installation.namespace.pods(**{KIND.name_label: name})),
        ]

    try:
        wait_until(lambda: not left())
    except AssertionError:
        wrong.append(f"{' and '.join(left())} are left")
    return wrong


def find_leftovers(installation: Installation, trainings: int) -> list[str]:
    """Returns what is wrong on the volume after all trainings."""
    run, wrong = installation.namespace.run, []
    pushed = len(installation.pushed())
    if pushed != trainings:
        wrong.append(f"{pushed} models were pushed instead of {trainings}")
    code = "import json, os; print(json.dumps({name: sorted(os.listdir(name)) for name in os.listdir()}))"
    folders = json.loads(run("folders", ["sh", "-c", f"cd {TRAINING} && python -c '{code}'"]))
    folders.pop("checkpoints", None)
    wrong += [f"{name} has {files}" for name, files in folders.items() if files != KEPT_FILES]
    if len(folders) != trainings:
        wrong.append(f"there are {len(folders)} folders of trainings instead of {trainings}")
    saves = run("saves", ["find", f"{TRAINING}/checkpoints", "-type", "f"]).split()
    wrong += [f"{file} is left" for file in saves]
    unfinished = run("unfinished", ["find", SERVING, "-maxdepth", "1", "-name", "*tmp*"]).split()
    wrong += [f"{file} is left" for file in unfinished]
    return wrong


if __name__ == "__main__":
    sys.exit(main())
