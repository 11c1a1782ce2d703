import inspect

import pytest
from google.protobuf.json_format import ParseError
from tfx import types
from tfx.components.trainer.component import Trainer as StockTrainer
from tfx.components.transform.component import Transform
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import standard_artifacts

from tfx_distribute.components import CsvExampleGen, Search, Trainer, Tuner, ValueRange
from tfx_distribute.components.trainer import job_builder
from tfx_distribute.components.trainer.component import TrainerSpec
from tfx_distribute.pipelines.spec.pipeline import Parameters
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.warm_start import WarmStart

SEARCH = Search(objective="val_loss", space={"units": ValueRange(min=1, max=8)}, max_trials=3)


def channel(artifact: type = standard_artifacts.Examples) -> types.Channel:
    return types.Channel(type=artifact)


def test_accepts_what_tfx_accepts():
    arguments = inspect.signature(Trainer.__init__).parameters
    stock_arguments = inspect.signature(StockTrainer.__init__).parameters
    # TFX 1.21 has it in the first place, where it breaks calls by position.
    places = [name for name in stock_arguments if name != "statistics"]
    assert list(arguments)[: len(places)] == places
    further = list(arguments.values())[len(places) :]
    *others, last = further
    assert all(argument.kind is inspect.Parameter.KEYWORD_ONLY for argument in others)
    assert last.kind is inspect.Parameter.VAR_KEYWORD
    assert {*StockTrainer.SPEC_CLASS.INPUTS, "statistics"} == set(TrainerSpec.INPUTS)
    assert set(StockTrainer.SPEC_CLASS.OUTPUTS) == set(TrainerSpec.OUTPUTS)


def test_misspelled_argument_is_refused():
    with pytest.raises(TypeError, match=r"^Trainer.__init__\(\) got an unexpected keyword argument 'stratgy'$"):
        Trainer(examples=channel(), build_model="m.build_model", label="y", stratgy="mirrored")


def test_each_parameter_takes_a_runtime_parameter():
    parameters = {
        name: data_types.RuntimeParameter(name, TrainerSpec.PARAMETERS[name].type) for name in Parameters.model_fields
    }
    trainer = Trainer(examples=channel(), build_model="m.build_model", label="y", **parameters)
    assert {name: trainer.spec.exec_properties[name] for name in parameters} == parameters


def test_values_reach_the_executor():
    """A flag as an int, since TFX has no bool."""
    known = {"strategy": "mirrored", "epochs": 3, "jit_compile": True, "num_workers": None}
    trainer = Trainer(channel(), build_model="m.build_model", label="y", hparams={"units": 3}, **known)
    properties = trainer.spec.exec_properties
    assert (properties["strategy"], properties["epochs"], properties["hparams"]) == ("mirrored", 3, '{"units": 3}')
    assert (properties["jit_compile"], properties.get("num_workers")) == (1, None)
    assert job_builder.training_parameters(properties).training_options.jit_compile is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"examples": channel()}, "exactly one of module_file, run_fn and build_model"),
        ({"examples": channel(), "run_fn": "m.run_fn", "module_file": "m.py"}, "exactly one of module_file"),
        ({"run_fn": "m.run_fn"}, "exactly one of examples and transformed_examples"),
        ({"transformed_examples": channel(), "run_fn": "m.run_fn"}, "transformed_examples needs transform_graph"),
        (
            {"examples": channel(), "build_model": "m.build_model", "example_weight": "w"},
            "example_weight: there is no label",
        ),
        ({"examples": channel(), "run_fn": "m.run_fn", "num_workers": 0}, "num_workers: 0 is too small"),
    ],
)
def test_contradictory_arguments_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        Trainer(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"run_fn": "m.run_fn", "precision": "mixed_bfloat16"}, "precision: a run_fn decides on it by itself; leave it out"),
        ({"run_fn": "m.run_fn", "hparams": {"units": 3}}, "hparams: are for build_model; write custom_config"),
        ({"build_model": "m.build_model", "custom_config": {"units": 3}}, "custom_config: is for a run_fn; write hparams"),
        ({"run_fn": "m.run_fn", "warm_start": WarmStart(freeze=["dense"])}, "base_model: a run_fn takes weights from"),
        (
            {"build_model": "m.build_model", "statistics": channel(standard_artifacts.ExampleStatistics)},
            "statistics: are for a run_fn",
        ),
        ({"module_file": "FILE", "shuffle_buffer_size": 5}, "shuffle_buffer_size: a run_fn decides"),
    ],
)
def test_settings_that_the_function_would_ignore_are_refused(tmp_path, arguments, message):
    (tmp_path / "own.py").write_text("def run_fn(fn_args): ...\n")
    if "module_file" in arguments:
        arguments = {**arguments, "module_file": str(tmp_path / "own.py")}
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        Trainer(examples=channel(), label="y", **arguments)


def test_known_values_are_checked_next_to_a_runtime_parameter():
    num_workers = data_types.RuntimeParameter("num_workers", int, default=2)
    with pytest.raises(ConfigurationError, match="^seed: a run_fn decides"):
        Trainer(examples=channel(), run_fn="m.run_fn", num_workers=num_workers, seed=3)
    Trainer(examples=channel(), run_fn="m.run_fn", seed=data_types.RuntimeParameter("seed", int), train_steps=5)


def test_raw_examples_with_a_transform_graph_are_for_a_run_fn():
    """A model of build_model would train on raw features and serve transformed ones."""
    raw = CsvExampleGen(input_base="data").outputs["examples"]
    transform = Transform(channel(), channel(standard_artifacts.Schema), preprocessing_fn="m.preprocessing_fn")
    graph = transform.outputs["transform_graph"]
    with pytest.raises(ConfigurationError, match=r"^examples: those of CsvExampleGen are raw.*\"transformed_examples\""):
        Trainer(raw, transform_graph=graph, build_model="m.build_model", label="y", epochs=1)
    with pytest.raises(ConfigurationError, match="^examples: those of CsvExampleGen are raw"):
        Tuner(SEARCH, raw, graph, build_model="m.build_model", label="y", hparams={"units": 4}, epochs=1)
    Trainer(raw, transform_graph=graph, run_fn="m.run_fn", train_steps=5)
    Trainer(raw, build_model="m.build_model", label="y", epochs=1)
    Trainer(channel(), transform_graph=graph, build_model="m.build_model", label="y", epochs=1)
    # Files of transformed examples, and the graph that they were made with.
    imported = channel(standard_artifacts.TransformGraph)
    Trainer(raw, transform_graph=imported, build_model="m.build_model", label="y", epochs=1)


def test_steps_that_contradict_each_other_are_refused():
    train_args, eval_args = trainer_pb2.TrainArgs(num_steps=7), trainer_pb2.EvalArgs(num_steps=3)
    with pytest.raises(ConfigurationError, match="^train_args: num_steps=7 and epochs=2 both say"):
        Trainer(channel(), build_model="m.build_model", label="y", epochs=2, train_args=train_args)
    with pytest.raises(ConfigurationError, match="^eval_args: num_steps=3 contradicts eval_steps=4"):
        Trainer(channel(), run_fn="m.run_fn", train_args=train_args, eval_args=eval_args, eval_steps=4)
    with pytest.raises(ConfigurationError, match="^train_args: num_steps=7 contradicts train_steps=9"):
        Tuner(SEARCH, channel(), build_model="m.build_model", hparams={"units": 4}, train_steps=9, train_args=train_args)
    epochs = data_types.RuntimeParameter("epochs", int)
    Trainer(channel(), build_model="m.build_model", label="y", epochs=epochs, train_args=train_args)


def test_arguments_of_tfx_as_dicts_are_checked_alike():
    known = {"examples": channel(), "build_model": "m.build_model", "label": "y"}
    train_args = {"splits": ["fold1"], "num_steps": 7}
    by_dict, by_message = (
        Trainer(**known, train_args=each).exec_properties["train_args"]
        for each in (train_args, trainer_pb2.TrainArgs(**train_args))
    )
    assert by_dict == by_message
    with pytest.raises(ConfigurationError, match="^train_args: num_steps=7 and epochs=2 both say"):
        Trainer(**known, epochs=2, train_args=train_args)
    with pytest.raises(ParseError, match='no field named "steps"'):
        Tuner(SEARCH, **known, hparams={"units": 4}, epochs=2, eval_args={"steps": 7})


@pytest.mark.parametrize(
    ("name", "value"), [("hparams", {"lr": 0.1}), ("train_args", {"num_steps": 5}), ("label", {"digit": "digit"})]
)
def test_a_runtime_parameter_within_a_value_is_refused(name, value):
    """A run would get its description in place of its value."""
    arguments = {"build_model": "m.build_model", "label": "y", "hparams": {"units": 4}}
    within = {key: data_types.RuntimeParameter("rate", float) for key in value}
    for component, given in ((Trainer, [channel()]), (Tuner, [SEARCH, channel()])):
        with pytest.raises((ConfigurationError, TypeError, ParseError), match="RuntimeParameter"):
            component(*given, **{**arguments, name: within})
    with pytest.raises(ConfigurationError, match=r"^hparams: .*RuntimeParameter\('hparams', str\) for a JSON object"):
        Trainer(channel(), build_model="m.build_model", hparams={"lr": data_types.RuntimeParameter("rate", float)})
    with pytest.raises(ConfigurationError, match="^custom_config: .*RuntimeParameter"):
        Trainer(channel(), run_fn="m.run_fn", custom_config={"lr": data_types.RuntimeParameter("rate", float)})
