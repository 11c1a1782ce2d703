"""Tests unchanged example modules of TFX: their `run_fn` with our Trainer."""

from pathlib import Path

import pytest
from tf_examples import make_example, make_schema, write_examples

pytestmark = pytest.mark.e2e

PENGUIN = """\
name: penguin
module: tfx.examples.penguin.penguin_utils_keras
data:
  tfrecord: package://tfx/components/testdata/penguin/data/Split-train
  splits: {train: 3, eval: 1}
transform: {}
trainer:
  parameters: {train_steps: 100, eval_steps: 5}
evaluate:
  label: species
  metrics:
    SparseCategoricalAccuracy: {lower_bound: 0.6}
push: {}
"""


def test_penguin_in_a_declarative_pipeline(command, tmp_path):
    (tmp_path / "penguin.yaml").write_text(PENGUIN)
    run = command("run", tmp_path / "penguin.yaml")
    assert run.code == 0, run.output
    assert "✓ Trainer" in run.output
    (version,) = (tmp_path / "runs" / "penguin" / "serving").iterdir()
    assert (version / "assets.extra" / "tf_serving_warmup_requests").is_file(), "the model was not asked"


def test_mnist_with_our_trainer_in_a_stock_pipeline(tmp_path):
    """Only the Trainer is replaced: LocalDagRunner and other components are TFX's."""
    from tfx.components.example_gen.import_example_gen.component import ImportExampleGen
    from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
    from tfx.components.transform.component import Transform
    from tfx.examples.mnist import mnist_utils_native_keras
    from tfx.orchestration import metadata, pipeline
    from tfx.orchestration.local import local_dag_runner
    from tfx.proto import trainer_pb2

    from tfx_distribute.components import Trainer

    write_mnist(tmp_path / "data")
    example_gen = ImportExampleGen(input_base=str(tmp_path / "data"))
    (tmp_path / "schema.pbtxt").write_text(make_schema(image_floats=("FLOAT", 784), image_class=("INT", 1)))
    schema = ImportSchemaGen(schema_file=str(tmp_path / "schema.pbtxt"))
    transform = Transform(
        examples=example_gen.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn=f"{mnist_utils_native_keras.__name__}.preprocessing_fn",  # a module_file would become a wheel
        disable_statistics=True,
    )
    trainer = Trainer(
        module_file=mnist_utils_native_keras.__file__,
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema.outputs["schema"],
        train_args=trainer_pb2.TrainArgs(num_steps=50),
        eval_args=trainer_pb2.EvalArgs(num_steps=5),
    )
    local_dag_runner.LocalDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="mnist",
            pipeline_root=str(tmp_path / "root"),
            components=[example_gen, schema, transform, trainer],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.sqlite")),
            beam_pipeline_args=["--direct_running_mode=in_memory"],
        )
    )
    (model,) = (tmp_path / "root" / "Trainer" / "model").glob("*/Format-Serving/saved_model.pb")
    assert model.is_file()
    assert list((tmp_path / "root" / "Trainer" / "model_run").glob("*/train/events*")), "TensorBoard logs of the module"


def write_mnist(folder: Path) -> None:
    """Writes digits in the shape of MNIST: 28 x 28 pixels."""
    import numpy as np
    from sklearn.datasets import load_digits

    folder.mkdir()
    digits = load_digits()
    images = np.pad(digits.images.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2))) / 16.0
    pairs = zip(images[:200], digits.target[:200], strict=True)
    write_examples(folder / "mnist.tfrecord", (make_example(image_floats=one, image_class=digit) for one, digit in pairs))
