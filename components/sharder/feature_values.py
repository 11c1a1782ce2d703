"""Summarizes the values of numeric features, to find labels that nothing can learn."""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfx_distribute.trainer_module.data.shard_manifest import FeatureValues

Summary = Mapping[str, FeatureValues]


def summarize(batch: pa.RecordBatch) -> dict[str, FeatureValues]:
    """Returns the values of each numeric feature of a batch, without nested lists."""
    summary = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_null(column.type) or not pa.types.is_primitive(column.type.value_type):
            continue
        values = pc.list_flatten(column).to_numpy(zero_copy_only=False)
        is_finite = np.isfinite(values)
        num_not_finite = 0
        if not is_finite.all():
            num_not_finite = len(np.unique(pc.list_parent_indices(column).to_numpy()[~is_finite]))
            values = values[is_finite]
        low, high = (values.min().item(), values.max().item()) if len(values) else (None, None)
        summary[name] = FeatureValues(low, high, num_not_finite)
    return summary


def merge(summaries: Iterable[Summary]) -> dict[str, FeatureValues]:
    """Returns the summary of several batches of examples."""
    grouped: dict[str, list[FeatureValues]] = {}
    for summary in summaries:
        for name, values in summary.items():
            grouped.setdefault(name, []).append(values)
    return {
        name: FeatureValues(
            min((each.minimum for each in group if each.minimum is not None), default=None),
            max((each.maximum for each in group if each.maximum is not None), default=None),
            sum(each.num_not_finite for each in group),
        )
        for name, group in grouped.items()
    }
