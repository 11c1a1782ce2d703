"""Runs a pipeline here, and then its Beam components with other runners; compares them.

    python beam_components.py PIPELINE ROOT BEAM...

Each BEAM is a `beam` setting as JSON. Each component gets the inputs that it had in the
run with the direct runner, and has to make the same of them. Prints a line of JSON for
each component and setting.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_data_validation as tfdv
import tensorflow_model_analysis as tfma
import tensorflow_transform as tft
from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.components.statistics_gen.executor import Executor as StatisticsGen
from tfx.components.transform.executor import Executor as Transform
from tfx.orchestration import metadata
from tfx.orchestration.portable import outputs_utils
from tfx.orchestration.portable.mlmd import execution_lib

from tfx_distribute.components.evaluator.executor import Executor as Evaluator
from tfx_distribute.components.sharder.executor import Executor as Sharder
from tfx_distribute.pipelines import load, run
from tfx_distribute.pipelines.spec import beam, user_module
from tfx_distribute.trainer_module.data import shard_manifest

EXECUTORS = {"StatisticsGen": StatisticsGen, "Transform": Transform, "Sharder": Sharder, "Evaluator": Evaluator}
Artifacts = dict[str, list[types.Artifact]]


def main(pipeline: str, root: Path, settings: list[dict[str, Any]]) -> None:
    spec = load(pipeline, {"train_steps": 40, "strategy": "one_device"})
    module = user_module.find(spec)
    run(spec, root / "direct")
    store = metadata.Metadata(metadata.sqlite_metadata_connection_config(str(root / "direct" / "metadata.sqlite")))
    with store, user_module.importable(module):
        for execution in store.store.get_executions():
            name = _component(store, execution)
            if name not in EXECUTORS:
                continue
            inputs = execution_lib.get_input_artifacts(store, execution.id)
            expected = execution_lib.get_output_artifacts(store, execution.id)
            properties = {key: _read_value(value) for key, value in execution.custom_properties.items()}
            properties = {key: value for key, value in properties.items() if value is not None}
            for number, setting in enumerate(settings):
                folder = root / f"setting-{number}" / name
                outputs = _make_outputs(expected, folder)
                words = beam.make_pipeline_args(beam.Beam(**setting), None, module.folder)
                context = EXECUTORS[name].Context(beam_pipeline_args=words, tmp_dir=str(folder / "tmp"), unique_id="1")
                start = time.monotonic()
                EXECUTORS[name](context).Do(inputs, outputs, dict(properties))
                seconds = time.monotonic() - start
                COMPARISONS[name](expected, outputs, inputs)
                print(json.dumps({"component": name, "seconds": round(seconds, 1), **setting}), flush=True)


def _component(store: metadata.Metadata, execution: metadata_store_pb2.Execution) -> str:
    contexts = store.store.get_contexts_by_execution(execution.id)
    return next(context.name.rpartition(".")[2] for context in contexts if _type_name(store, context) == "node")


def _type_name(store: metadata.Metadata, context: metadata_store_pb2.Context) -> str:
    (found,) = store.store.get_context_types_by_id([context.type_id])
    return str(found.name)


def _read_value(value: metadata_store_pb2.Value) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind != "struct_value" else None


def _make_outputs(expected: Artifacts, folder: Path) -> Artifacts:
    outputs: Artifacts = {}
    for name, (artifact,) in expected.items():
        made = type(artifact)()
        made.uri = str(folder / name)
        outputs[name] = [made]
    outputs_utils.make_output_dirs(outputs)
    return outputs


def _uris(expected: Artifacts, outputs: Artifacts, name: str) -> tuple[Path, Path]:
    return Path(expected[name][0].uri), Path(outputs[name][0].uri)


def compare_statistics(expected: Artifacts, outputs: Artifacts, _: Artifacts) -> None:
    """Counts and extremes are the same; means are, but for rounding."""
    before, now = _uris(expected, outputs, "statistics")
    splits = sorted(path.name for path in before.glob("Split-*"))
    assert splits
    for split in splits:
        one, other = (
            tfdv.load_stats_binary(str(folder / split / "FeatureStats.pb")).datasets[0] for folder in (before, now)
        )
        assert one.num_examples == other.num_examples > 0
        features = [{feature.path.step[0]: feature for feature in dataset.features} for dataset in (one, other)]
        assert features[0].keys() == features[1].keys()
        for name, feature in features[0].items():
            assert list(_counts(feature)) == list(_counts(features[1][name])), name
            # z-scores have a mean of zero, which is nothing but rounding.
            means = [list(_means(each[name])) for each in features]
            np.testing.assert_allclose(*means, rtol=1e-9, atol=1e-12, err_msg=name)


def _counts(feature: Any) -> Iterator[Any]:
    kind = feature.WhichOneof("stats")
    statistics = getattr(feature, kind)
    yield statistics.common_stats.num_non_missing, statistics.common_stats.num_missing
    if kind == "num_stats":
        yield statistics.num_zeros, statistics.min, statistics.max
    if kind == "string_stats":
        yield statistics.unique, sorted((value.value, value.frequency) for value in statistics.top_values)


def _means(feature: Any) -> Iterator[float]:
    if feature.HasField("num_stats"):
        yield from (feature.num_stats.mean, feature.num_stats.std_dev)


def compare_transforms(expected: Artifacts, outputs: Artifacts, inputs: Artifacts) -> None:
    """Vocabularies are the same; transformed examples are, but for rounding."""
    before, now = _uris(expected, outputs, "transform_graph")
    names = sorted(path.name for path in (before / "transform_fn" / "assets").glob("*"))
    assert names == sorted(path.name for path in (now / "transform_fn" / "assets").glob("*"))
    for name in names:
        one, other = ((folder / "transform_fn" / "assets" / name).read_bytes() for folder in (before, now))
        assert one == other, name
    graphs = [tft.TFTransformOutput(str(folder)) for folder in (before, now)]
    (file, *_) = sorted((Path(inputs["examples"][0].uri) / "Split-eval").iterdir())
    records = tf.data.TFRecordDataset(str(file), "GZIP").batch(500).take(1)
    raw = tf.io.parse_example(next(iter(records)), graphs[0].raw_feature_spec())
    one, other = (graph.transform_features_layer()(raw) for graph in graphs)
    assert one.keys() == other.keys()
    for name in one:
        values = [tf.sparse.to_dense(t[name]) if isinstance(t[name], tf.SparseTensor) else t[name] for t in (one, other)]
        np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6, err_msg=name)


def compare_shards(expected: Artifacts, outputs: Artifacts, _: Artifacts) -> None:
    """Each shard has the same bytes."""
    before, now = _uris(expected, outputs, "sharded_examples")
    manifests = [shard_manifest.read(str(folder)) for folder in (before, now)]
    assert manifests[0] == manifests[1]
    assert sum(split.num_examples for split in manifests[0].splits.values()) > 1000
    for split in manifests[0].splits.values():
        for shard in split.shards:
            assert (before / shard.file).read_bytes() == (now / shard.file).read_bytes(), shard.file
    if "statistics" in expected:
        compare_statistics(expected, outputs, _)


def compare_evaluations(expected: Artifacts, outputs: Artifacts, _: Artifacts) -> None:
    """Metrics of all slices are the same, but for rounding; so is the verdict."""
    one, other = (_read_metrics(folder) for folder in _uris(expected, outputs, "evaluation"))
    assert one.keys() == other.keys()
    assert one
    for key, value in one.items():
        np.testing.assert_allclose(value, other[key], rtol=1e-4, err_msg=str(key))
    verdicts = [artifacts["blessing"][0].get_int_custom_property("blessed") for artifacts in (expected, outputs)]
    assert verdicts[0] == verdicts[1]


def _read_metrics(folder: Path) -> dict[Any, float]:
    return {
        (str(metrics.slice_key), pair.key.name): pair.value.double_value.value
        for metrics in tfma.load_metrics(str(folder))
        for pair in metrics.metric_keys_and_values
    }


COMPARISONS = {
    "StatisticsGen": compare_statistics,
    "Transform": compare_transforms,
    "Sharder": compare_shards,
    "Evaluator": compare_evaluations,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [json.loads(setting) for setting in sys.argv[3:]])
