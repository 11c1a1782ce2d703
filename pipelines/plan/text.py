"""Formats a `RunPlan` as text."""

import yaml

from tfx_distribute.components.tuner.search import Search, ValueRange
from tfx_distribute.pipelines.plan.run_plan import DataPlan, RunPlan

BY_MACHINE = "decided by the machine"


def as_text(plan: RunPlan) -> str:
    """Formats a plan: one step, then each role, warnings, and the job it launches."""
    rows = [
        ("pipeline", plan.pipeline),
        ("strategy", f"{plan.strategy}{f', chosen for {plan.chosen_for}' if plan.chosen_for else ''} ({plan.summary})"),
        ("processes", _processes(plan)),
        ("replicas", _value_or(plan.num_replicas, BY_MACHINE)),
        ("batch", _batch(plan)),
        ("steps", _steps(plan)),
    ]
    if plan.data:
        rows.append(("shards", _shards(plan.data)))
    if plan.learning_rate_factor != 1:
        rows.append(("learn rate", _learning_rate(plan)))
    if plan.hparams:
        rows.append(("hparams", ", ".join(f"{name}={value}" for name, value in plan.hparams.items())))
    if plan.search:
        rows += [("search", _search(plan.search)), ("space", _space(plan.search))]
    lines = [f"{name:<11}{value}" for name, value in rows]
    for role in plan.roles:
        count = f" ({role.num_processes} processes)" if role.num_processes > 1 else ""
        lines += ["", f"{role.role}{count}: {role.does}", f"  runs       {role.command}", f"  writes     {role.writes}"]
    if plan.tf_config:
        lines += ["", f"TF_CONFIG  {plan.tf_config}"]
    if plan.warnings:
        lines += ["", *(f"warning: {warning}" for warning in plan.warnings)]
    if plan.launches:
        lines += ["", "They run as:", yaml.safe_dump(plan.launches, sort_keys=False).rstrip()]
    return "\n".join(lines)


def _processes(plan: RunPlan) -> str:
    each = " each" if plan.num_processes > 1 else ""
    if plan.devices_per_process is None:
        return f"{plan.num_processes}, devices{each and ' of each'} {BY_MACHINE}"
    return f"{plan.num_processes} with {_count(plan.devices_per_process, 'device')}{each}"


def _batch(plan: RunPlan) -> str:
    if plan.data is None:
        return "decided by the run_fn"
    times = plan.gradient_accumulation_steps
    replica_batch = f"{times} times {plan.per_replica_batch_size}" if times > 1 else str(plan.per_replica_batch_size)
    return f"{replica_batch} per replica, global {_value_or(plan.global_batch_size, BY_MACHINE)}"


def _learning_rate(plan: RunPlan) -> str:
    return f"build_model's times {_value_or(plan.learning_rate_factor, f'a factor {BY_MACHINE}')}"


def _search(search: Search) -> str:
    length = _count(search.epochs, "epoch") if search.epochs else _count(search.train_steps, "step")
    at_once = f", {search.num_parallel_trials} at a time" if search.num_parallel_trials > 1 else ""
    extreme = "largest" if search.goal == "max" else "smallest"
    trials = f"{_count(search.max_trials, 'trial')} ({search.oracle}) of {length}"
    if search.oracle == "hyperband":
        trials = f"hyperband, trials of at most {length}"
    return f"{trials}{at_once}, for the {extreme} {search.objective}; then the training with the best values"


def _space(search: Search) -> str:
    return ", ".join(f"{name}={_values(values)}" for name, values in search.space.items())


def _values(values: ValueRange) -> str:
    if values.values:
        return "|".join(map(str, values.values))
    step = f" step {values.step:g}" if values.step else ""
    sampling = f" {values.sampling}" if values.sampling != "linear" else ""
    return f"{values.min:g}..{values.max:g}{step}{sampling}"


def _steps(plan: RunPlan) -> str:
    if plan.train_steps is None:
        return "known when the data has been read"
    return f"{plan.train_steps}{f', {plan.steps_per_epoch} per epoch' if plan.steps_per_epoch else ''}"


def _shards(data: DataPlan) -> str:
    if data.num_shards is None:
        return f"as many as suit the data and {_count(data.processes, 'process', 'processes')}"
    shared = f", shared with {_count(data.sharing - 1, 'other')}" if data.sharing and data.sharing > 1 else " of its own"
    return f"{data.num_shards}, {data.shards_per_process} per process{shared}"


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _value_or(value: float | None, otherwise: str) -> str:
    if value is None:
        return otherwise
    return str(value) if isinstance(value, int) else f"{value:g}"
