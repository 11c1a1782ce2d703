"""Tests the job document that is built from the executor's arguments."""

import json
import os
import runpy
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest
import tensorflow as tf
from doc_examples import python_blocks
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import path_utils, proto_utils

from tfx_distribute.components.trainer import job_builder
from tfx_distribute.components.trainer.staging import Artifacts, Staged
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    FaultTolerance,
    Outputs,
    Split,
    TrainingData,
    TrainingJob,
    TrainingOptions,
    UserModule,
)
from tfx_distribute.trainer_module.job.warm_start import WarmStart
from tfx_distribute.trainer_module.user_code import module_loader, run_fn


def artifact(kind: type, uri: Path):
    new = kind()
    new.uri = str(uri)
    uri.mkdir(parents=True, exist_ok=True)
    return new


def build_job(inputs: Artifacts, outputs: Artifacts, properties: dict, work_dir: str) -> TrainingJob:
    parameters = job_builder.training_parameters(properties)
    return job_builder.build_job(Staged(inputs, outputs, {}), properties, parameters, work_dir)


@pytest.fixture
def inputs(digits, tmp_path):
    examples = artifact(standard_artifacts.Examples, tmp_path / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    for split in ("train", "eval"):
        folder = tmp_path / "examples" / f"Split-{split}"
        folder.mkdir()
        (folder / "part.gz").write_bytes(Path(getattr(digits, split).files[0]).read_bytes())
    schema = artifact(standard_artifacts.Schema, tmp_path / "schema")
    (tmp_path / "schema" / "schema.pbtxt").write_text(Path(digits.schema).read_text())
    return {"examples": [examples], "schema": [schema]}


@pytest.fixture
def outputs(tmp_path):
    return {
        "model": [artifact(standard_artifacts.Model, tmp_path / "model")],
        "model_run": [artifact(standard_artifacts.ModelRun, tmp_path / "model_run")],
    }


PROPERTIES = {
    "build_model": "m.build_model",
    "label": "digit",
    "epochs": 2,
    "strategy": "mirrored",
    "hparams": '{"units": 3}',
}


def test_the_whole_document(inputs, outputs, tmp_path):
    train, held_out = (f"{tmp_path}/examples/Split-{split}/part.gz" for split in ("train", "eval"))
    job = build_job(inputs, outputs, PROPERTIES, "/work")
    state = job.outputs.checkpoint_dir
    assert os.path.dirname(state) == f"{tmp_path.parent}/.checkpoints", "beside the folders of all executions"
    assert job == TrainingJob(
        module=UserModule("m.build_model"),
        data=TrainingData(
            train=Split((train,), 1400, os.path.getsize(train)),
            eval=Split((held_out,), 397, os.path.getsize(held_out)),
            label="digit",
            transform_graph=None,
            schema=f"{tmp_path}/schema/schema.pbtxt",
        ),
        distribution=Distribution("mirrored"),
        training_options=TrainingOptions(epochs=2),
        outputs=Outputs(f"{tmp_path}/model/Format-Serving", f"{tmp_path}/model_run", "/work/training_result.json", state),
        hparams={"units": 3},
        raw_examples=(held_out,),
    )


def test_functions_may_have_any_name(inputs, outputs):
    job = build_job(inputs, outputs, {**PROPERTIES, "build_model": "my.models.wide_and_deep"}, "/work")
    assert (job.module.function, job.run_fn) == ("my.models.wide_and_deep", None)
    properties = {"run_fn": "my.models.build_model", "train_steps": 5}
    assert build_job(inputs, outputs, properties, "/work").run_fn is not None


def test_auto_strategy_is_resolved(inputs, outputs):
    job = build_job(inputs, outputs, {**PROPERTIES, "strategy": "auto", "num_workers": 2}, "/work")
    assert job.distribution == Distribution("multi_worker_mirrored", num_workers=2)


def test_hyperparameters_of_a_pipeline_file_arrive_as_they_are(inputs, outputs, tmp_path):
    """Values of the file and of `-p` share one pipeline parameter."""
    (tmp_path / "pipeline.yaml").write_text(
        "{name: mine, module: m.py, data: {csv: data}, trainer: {label: digit, parameters: {epochs: 1}, hparams: {"
        "a: .nan, b: 1.0, c: -0.0, d: 1208925819614629174706176, e: true, f: '1e5', g: .nan, h: 1.0e+400}}}"
    )
    spec = loader.override(
        loader.load(tmp_path / "pipeline.yaml"), loader.parse_parameters(["b=-.inf", "e=false", "f='007'", "g=1e-3"])
    )
    properties = {**PROPERTIES, "hparams": tfx_pipeline.get_parameter_values(spec)["hparams"]}
    job = build_job(inputs, outputs, properties, "/work")
    arrived = TrainingJob.from_json(job.to_json()).hparams
    expected = {"a": nan, "b": -inf, "c": -0.0, "d": 2**80, "e": False, "f": "007", "g": 0.001, "h": inf}
    assert repr(arrived) == repr(expected)


def test_a_tuners_hyperparameters_win(inputs, outputs, tmp_path):
    best = artifact(standard_artifacts.HyperParameters, tmp_path / "best")
    (tmp_path / "best" / "best_hyperparameters.txt").write_text(json.dumps({"space": [], "values": {"units": 9}}))
    job = build_job({**inputs, "hyperparameters": [best]}, outputs, PROPERTIES, "/work")
    assert job.hparams == {"units": 9}
    # KerasTuner's Hyperband has values of its own among them.
    (tmp_path / "best" / "best_hyperparameters.txt").write_text('{"values": {"units": 9, "tuner/epochs": 3}}')
    assert build_job({**inputs, "hyperparameters": [best]}, outputs, PROPERTIES, "/work").hparams == {"units": 9}


def test_steps_of_train_args_are_defaults(inputs, outputs):
    args = {
        "train_args": proto_utils.proto_to_json(trainer_pb2.TrainArgs(num_steps=7)),
        "eval_args": proto_utils.proto_to_json(trainer_pb2.EvalArgs(num_steps=3)),
    }
    base = {**PROPERTIES, **args}

    def training_options(**changes):
        return build_job(inputs, outputs, {**base, **changes}, "/work").training_options

    assert training_options(epochs=None) == TrainingOptions(train_steps=7, eval_steps=3)
    assert training_options(epochs=None, train_steps=7) == TrainingOptions(train_steps=7, eval_steps=3)
    assert training_options(train_args=None) == TrainingOptions(epochs=2, eval_steps=3)


def test_a_trial_of_a_search_may_have_another_length_than_train_args(inputs):
    properties = {"train_args": '{"num_steps": 7}', "build_model": "m.build_model", "label": "digit"}
    parameters = job_builder.training_parameters(properties)
    assert parameters.training_options.train_steps == 7
    trial = parameters._replace(training_options=TrainingOptions(epochs=2))
    job = job_builder.describe_job(inputs, Outputs("", "", ""), properties, trial, "/work")
    assert job.training_options == TrainingOptions(epochs=2)


def test_run_fn_gets_what_tfx_would_give(inputs, outputs):
    properties = {"run_fn": "m.run_fn", "train_steps": 5, "custom_config": '{"a": 1}'}
    job = build_job(inputs, outputs, properties, "/work")
    assert job.data is None
    assert job.run_fn.exec_properties["custom_config"] == '{"a": 1}'
    assert json.loads(job.run_fn.exec_properties["train_args"]) == {"num_steps": 5}
    restored = artifact_utils.parse_artifact_dict(job.run_fn.inputs)
    assert restored["examples"][0].uri == inputs["examples"][0].uri
    assert replace(job, run_fn=None).module == UserModule("m.run_fn")


def test_module_file_that_tfx_packaged_is_unpacked(tmp_path):
    from tfx.components.util import udf_utils

    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own.py").write_text("import helper\ndef run_fn(fn_args): ...\n")
    (tmp_path / "code" / "helper.py").write_text("")
    _, packaged = udf_utils.package_user_module_file("Trainer", str(tmp_path / "code" / "own.py"), str(tmp_path))
    module, kind = job_builder.unpack_user_module({"module_path": packaged}, str(tmp_path / "work"))
    assert kind == "run_fn"
    assert module.function == "own.run_fn"
    assert {path.name for path in Path(module.search_path[0]).glob("*.py")} == {"own.py", "helper.py"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "train_steps: neither train_steps nor epochs is set"),
        (
            {"train_args": proto_utils.proto_to_json(trainer_pb2.TrainArgs(splits=["tain"]))},
            "train_args: the examples have no split 'tain'; they have eval, train",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(inputs, outputs, changes, message):
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        build_job(inputs, outputs, {**PROPERTIES, **changes}, "/work")


def test_base_model_reaches_the_job_and_its_state(inputs, outputs, tmp_path):
    """Another base model in the same place is another training."""
    base = artifact(standard_artifacts.Model, tmp_path / "base")
    missing = build_job(inputs, outputs, PROPERTIES, "/work")
    assert build_job({**inputs, "base_model": []}, outputs, PROPERTIES, "/work") == missing, "no model is blessed yet"
    folders = {missing.outputs.checkpoint_dir}
    for value in (1.0, 2.0):
        (tmp_path / "base.keras").write_text(str(value))
        base.uri = f"{tmp_path}/base.keras"
        job = build_job({**inputs, "base_model": [base]}, outputs, PROPERTIES, "/work")
        assert (job.base_model, job.warm_start) == (base.uri, WarmStart())
        folders.add(job.outputs.checkpoint_dir)
    settings = WarmStart(freeze=["dense"], vocabularies={"words": {"words": 1}})
    properties = {**PROPERTIES, "warm_start": settings.to_json()}
    job = build_job({**inputs, "base_model": [base]}, outputs, properties, "/work")
    assert job.warm_start == settings
    folders.add(job.outputs.checkpoint_dir)
    assert len(folders) == 4
    base.uri = f"{tmp_path}/nothing"
    with pytest.raises(ConfigurationError, match="^base_model: there is no model .*/nothing; write"):
        build_job({**inputs, "base_model": [base]}, outputs, PROPERTIES, "/work")


TWO_MODELS = """
import os

def run_fn(fn_args):
    for folder in (fn_args.serving_model_dir, fn_args.eval_model_dir):
        os.makedirs(folder)
        open(folder + "/saved_model.pb", "w").close()
"""


def test_eval_model_of_a_run_fn_is_where_tfx_looks_for_it(inputs, outputs, tmp_path):
    (tmp_path / "two_models.py").write_text(TWO_MODELS)
    properties = {"module_file": str(tmp_path / "two_models.py"), "train_steps": 5}
    job = build_job(inputs, outputs, properties, str(tmp_path))
    run_fn.run(job, job.run_fn, tf.distribute.get_strategy(), is_chief=True)
    assert path_utils.eval_model_path(outputs["model"][0].uri) == f"{tmp_path}/model/Format-TFMA"


RUN_FN = """
import atexit, os
import tensorflow as tf
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx_bsl.public import tfxio
from tfx_distribute.trainer_module import get_strategy

def run_fn(fn_args: FnArgs):
    assert fn_args.custom_config == {"units": 4} and fn_args.train_steps == 6
    atexit.register(os.mkdir, f"{fn_args.model_run_dir}/exited-{os.getpid()}")
    strategy = %s
    spec = {"pixels": tf.io.FixedLenFeature([64], tf.float32), "digit": tf.io.FixedLenFeature([1], tf.int64)}
    def parse(batch):
        example = tf.io.parse_example(batch, spec)
        return example["pixels"], example["digit"]
    files = tf.io.gfile.glob(fn_args.train_files)
    data = tf.data.TFRecordDataset(files, "GZIP").repeat().batch(32).map(parse)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(10, activation="softmax", input_shape=(64,))])
        model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(data.with_options(options), steps_per_epoch=fn_args.train_steps, verbose=0)
    model.save(fn_args.serving_model_dir, save_format="tf")
"""


KEEPS_ITS_STATE = """
import os, signal
import tensorflow as tf
from tfx_distribute.trainer_module import get_strategy

def run_fn(fn_args):
    strategy = get_strategy()
    task = f"{strategy.cluster_resolver.task_type}-{strategy.cluster_resolver.task_id}"
    killed = f"{fn_args.model_run_dir}/killed"

    class Trace(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            with open(f"{fn_args.model_run_dir}/epochs-{task}", "a") as file:
                print(epoch, self.model.optimizer.iterations.numpy(), file=file)
            if task == "worker-0" and epoch == 3 and not os.path.exists(killed):
                open(killed, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)

    data = tf.data.Dataset.from_tensor_slices((tf.ones([64, 4]), tf.ones([64, 1]))).batch(16).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = data.with_options(options)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(4,))])
        rate = tf.keras.optimizers.schedules.PiecewiseConstantDecay([16], [0.01, 9.0])
        model.compile(tf.keras.optimizers.SGD(rate), "mse")
    best = os.path.join(fn_args.model_run_dir, "best")
    callbacks = [
        tf.keras.callbacks.BackupAndRestore(os.path.join(fn_args.model_run_dir, "backup")),
        tf.keras.callbacks.ModelCheckpoint(best, monitor="loss", save_best_only=True, save_weights_only=True),
        tf.keras.callbacks.TensorBoard(fn_args.model_run_dir),
        Trace(),
    ]
    model.fit(data, steps_per_epoch=4, epochs=6, verbose=0, callbacks=callbacks)
    last = model.evaluate(data, steps=1, verbose=0)  # in which all processes meet
    model.load_weights(best)
    assert model.evaluate(data, steps=1, verbose=0) < 0.1 < last
    model.save(fn_args.serving_model_dir, save_format="tf")
"""


@pytest.fixture
def run_fn_job(inputs, outputs, tmp_path):
    def make(code: str = RUN_FN % "get_strategy()", strategy: str = "multi_worker_mirrored") -> TrainingJob:
        (tmp_path / "own_run_fn.py").write_text(code)
        properties = {
            "module_file": str(tmp_path / "own_run_fn.py"),
            "strategy": strategy,
            "num_workers": 2,
            "accelerator_type": "cpu",
            "train_steps": 6,
            "eval_steps": 2,
            "custom_config": '{"units": 4}',
        }
        return build_job(inputs, outputs, properties, str(tmp_path))

    return make


def test_pipeline_and_functions_of_the_page_on_migrating(request, tmp_path):
    pipeline, module, later = python_blocks(request.config.rootpath / "docs" / "migrating.md")
    (tmp_path / "pipeline.py").write_text(pipeline)
    file = tmp_path / "module.py"
    file.write_text(module)
    make_pipeline = runpy.run_path(str(tmp_path / "pipeline.py"))["make_pipeline"]
    made = make_pipeline("digits", str(tmp_path), "data", str(file), strategy="multi_worker_mirrored")
    assert made.components[-1].exec_properties["strategy"] == "multi_worker_mirrored"
    file.write_text(module + later)
    assert module_loader.training_function(module_loader.top_level_names(file), "module.py") == "build_model"
    assert runpy.run_path(str(file))["build_model"](None).optimizer is not None


@pytest.mark.e2e
def test_module_of_the_page_on_migrating_trains_with_two_workers(request, run_fn_job, cluster, tmp_path):
    """What its chief prints is its progress."""
    _, module, _ = python_blocks(request.config.rootpath / "docs" / "migrating.md")
    cluster.job = run_fn_job(module.replace("verbose=0", "epochs=2, verbose=2"))
    assert cluster.train().num_replicas == 2
    assert (tmp_path / "model" / "Format-Serving" / "saved_model.pb").is_file()
    printed = [progress.activity for _, progress in cluster.reports if progress.phase == "run_fn"]
    assert "Epoch 1/2" in printed
    assert {str(task) for task, progress in cluster.reports if progress.phase == "run_fn"} == {"chief"}


@pytest.mark.e2e
def test_run_fn_trains_under_the_strategy_that_it_takes(run_fn_job, cluster, tmp_path):
    """Two workers train in the test of the page on migrating."""
    cluster.job = run_fn_job(strategy="parameter_server")
    assert cluster.train().num_replicas == 1
    assert (tmp_path / "model" / "Format-Serving" / "saved_model.pb").is_file()
    assert len(list((tmp_path / "model_run").glob("exited-*"))) == 1, "functions of atexit ran"


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("strategy", "policy", "message"),
    [
        ("get_strategy()", "AUTO", "fit got no examples in this process of own_run_fn.run_fn.*AutoShardPolicy.DATA"),
        ("tf.distribute.get_strategy()", "DATA", "did not train one model with all processes .*: it did not take"),
        (
            "tf.distribute.MirroredStrategy()",
            "DATA",
            r"made a MirroredStrategy of its own \(.*own_run_fn.py, line 11\).*get_strategy",
        ),
    ],
)
def test_run_fn_that_would_not_train_one_model_is_refused_at_once(run_fn_job, cluster, strategy, policy, message):
    cluster.job = run_fn_job((RUN_FN % strategy).replace("AutoShardPolicy.DATA", f"AutoShardPolicy.{policy}"))
    with pytest.raises(TrainingError, match=message):
        cluster.train()
    assert not any("restart" in message for message in cluster.messages())


@pytest.mark.e2e
def test_callbacks_of_keras_keep_their_state_in_the_folder_of_the_run(run_fn_job, cluster, tmp_path):
    """A worker is killed in the fourth epoch, and the best weights are not the last."""
    cluster.job = run_fn_job(KEEPS_ITS_STATE)
    cluster.train(fault_tolerance=FaultTolerance(heartbeat_timeout_secs=3))
    for task in ("chief-0", "worker-0"):
        epochs = (tmp_path / "model_run" / f"epochs-{task}").read_text().split("\n")[:-1]
        assert epochs == [f"{epoch} {4 * epoch}" for epoch in (0, 1, 2, 3, 3, 4, 5)]
    left = {path.name for path in (tmp_path / "model_run").iterdir() if path.is_dir()}
    assert left == {"backup", "history", "train"}
    assert (tmp_path / "model" / "Format-Serving" / "saved_model.pb").is_file()
