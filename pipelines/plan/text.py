"""Formats a `RunPlan` as text."""

import yaml

from tfx_distribute.pipelines.plan.run_plan import DataPlan, RunPlan

BY_MACHINE = "decided by the machine"


def as_text(plan: RunPlan) -> str:
    """Formats a plan: one step, then each process, warnings, and the job it launches.

    Args:
      plan: The plan.
    """
    rows = [
        ("pipeline", plan.pipeline),
        ("strategy", f"{plan.strategy}{f', chosen for {plan.chosen_for}' if plan.chosen_for else ''} ({plan.summary})"),
        ("processes", f"{len(plan.processes)}, {_value_or(plan.devices_per_process, BY_MACHINE)} device(s) each"),
        ("replicas", _value_or(plan.num_replicas, BY_MACHINE)),
        ("batch", f"{_replica_batch(plan)} per replica, global {_value_or(plan.global_batch_size, BY_MACHINE)}"),
        ("steps", _steps(plan)),
    ]
    if plan.data:
        rows += [("data", _data(plan.data)), ("shards", _shards(plan.data))]
    if plan.learning_rate_factor != 1 or plan.warmup_steps:
        warmup = f", reached in {plan.warmup_steps} steps" if plan.warmup_steps else ""
        rows.append(("learn rate", f"build_model's times {_value_or(plan.learning_rate_factor, BY_MACHINE)}{warmup}"))
    if plan.hparams:
        rows.append(("hparams", ", ".join(f"{name}={value}" for name, value in plan.hparams.items())))
    lines = [f"{name:<11}{value}" for name, value in rows]
    for process in plan.processes:
        lines += ["", f"{process.task} {process.does}", f"  runs       {process.command}"]
        if process.tf_config:
            lines.append(f"  TF_CONFIG  {process.tf_config}")
        lines.append(f"  writes     {process.writes}")
    if plan.warnings:
        lines += ["", *(f"warning: {warning}" for warning in plan.warnings)]
    if plan.launches:
        lines += ["", "They run as:", yaml.safe_dump(plan.launches, sort_keys=False).rstrip()]
    return "\n".join(lines)


def _replica_batch(plan: RunPlan) -> str:
    times = plan.gradient_accumulation_steps
    return f"{times} times {plan.per_replica_batch_size}" if times > 1 else str(plan.per_replica_batch_size)


def _steps(plan: RunPlan) -> str:
    if plan.train_steps is None:
        return "known when the data has been read"
    if plan.steps_per_epoch is None:
        return str(plan.train_steps)
    return f"about {plan.train_steps}, {plan.steps_per_epoch} per epoch"


def _data(data: DataPlan) -> str:
    if data.num_examples is None or data.num_bytes is None:
        return "known when it has been read"
    left_over = "" if data.examples_left_over is None else f", {data.examples_left_over} left over"
    return (
        f"about {data.num_examples} examples, {data.num_bytes / (1 << 20):.1f} MiB before the transform; "
        f"{data.examples_per_process} per process and epoch{left_over}"
    )


def _shards(data: DataPlan) -> str:
    if data.num_shards is None:
        return f"as many as suit the data and {data.processes} process(es)"
    shared = f", shared with {data.sharing - 1} other(s)" if data.sharing and data.sharing > 1 else " of its own"
    chosen = f" ({data.chosen_for})" if data.chosen_for else ""
    return f"{data.num_shards}, {data.shards_per_process} per process{shared}{chosen}"


def _value_or(value: float | None, otherwise: str) -> str:
    if value is None:
        return otherwise
    return str(value) if isinstance(value, int) else f"{value:g}"
