"""Takes weights over from every kind of file, and says what does not fit."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.warm_start import WarmStart
from tfx_distribute.trainer_module.state.base_model import location, model_weights, vocabularies, warm_start, weight_files

FAKES = Path(__file__).resolve().parents[3] / "fakes"


def make_model(*units: int, head: str = "head", rows: int = 0) -> tf.keras.Model:
    """Returns a model with an embedding if it has rows, dense layers, and a head."""
    inputs = tf.keras.Input((1,) if rows else (4,), name="x", dtype=tf.int64 if rows else tf.float32)
    hidden = tf.keras.layers.Flatten()(tf.keras.layers.Embedding(rows, 3, name="words")(inputs)) if rows else inputs
    for number, size in enumerate(units):
        hidden = tf.keras.layers.Dense(size, name=f"hidden{number}")(hidden)
    model = tf.keras.Model({"x": inputs}, tf.keras.layers.Dense(2, name=head)(hidden))
    model.compile("adam", "mse")
    return model


def start(model: tf.keras.Model, path: Path, transform_output=None, **settings):
    job = SimpleNamespace(base_model=str(path), warm_start=WarmStart(**settings))
    return warm_start.apply(job, model, model.optimizer, transform_output)


def weights(model: tf.keras.Model) -> dict[str, np.ndarray]:
    return {weight.name.removesuffix(":0"): weight.numpy() for weight in model.weights}


@pytest.fixture
def base(tmp_path) -> tuple[tf.keras.Model, Path]:
    model = make_model(5, 6)
    model.save(tmp_path / "base" / "Format-Serving", save_format="tf")
    return model, tmp_path / "base"


@pytest.mark.e2e
@pytest.mark.parametrize("keras_version", [2, 3])
def test_every_kind_of_file_gives_every_weight(forked_trainings, tmp_path, keras_version):
    """Also to a model with other automatic names, bit by bit."""
    words = [FAKES / "base_models.py", str(keras_version), tmp_path]
    with (tmp_path / "log").open("wb") as log:
        if keras_version == 2:
            process = forked_trainings.start(words, os.environ, tmp_path, log)
        else:  # no process has imported it in this environment
            process = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log)
        try:
            code = process.wait(280)
        finally:
            process.kill()
    text = (tmp_path / "log").read_text()
    assert code == 0, text[-3000:]
    kinds = ("saved_model", "x.keras", "x.weights.h5", "export")
    lines = [line for line in text.splitlines() if line.endswith("equal")]
    assert lines == [f"{kind}: equal" for kind in kinds]


def test_differences_are_listed_with_their_shapes(base):
    model = make_model(5, 7)
    before = weights(model)
    with pytest.raises(ConfigurationError) as error:
        start(model, base[1])
    message = str(error.value)
    assert "hidden1/kernel: [5, 6] in the base model, [5, 7] in the model; hidden1/bias: [6] in the base model" in message
    assert "head/kernel: [6, 2] in the base model, [7, 2] in the model" in message
    assert "hidden0" not in message
    assert all(np.array_equal(value, before[name]) for name, value in weights(model).items()), "nothing is taken"

    result = start(model, base[1], mismatch="skip")
    assert (result.weights_taken, result.weights_skipped) == (3, 3)
    expected = {**before, **{name: value for name, value in weights(base[0]).items() if name.startswith("hidden0")}}
    expected["head/bias"] = weights(base[0])["head/bias"]
    assert all(np.array_equal(value, expected[name]) for name, value in weights(model).items())


def test_renamed_layer_takes_its_weights(base):
    model = make_model(5, 6, head="classes")
    with pytest.raises(
        ConfigurationError, match=r"classes/kernel: \[6, 2\] in the model only.*head/kernel: \[6, 2\] in the"
    ):
        start(model, base[1])
    result = start(model, base[1], rename={"head": "classes"})
    assert result.weights_taken == 6
    np.testing.assert_array_equal(weights(model)["classes/kernel"], weights(base[0])["head/kernel"])


def test_another_architecture_is_one_message(base):
    inputs = tf.keras.Input((4,), name="x")
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(3, name="other")(inputs))
    for mismatch in ("fail", "skip"):
        with pytest.raises(ConfigurationError, match=r"another architecture: .*hidden0/kernel.* \(6 in .*other/kernel"):
            start(model, base[1], mismatch=mismatch)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nothing", None, "no model that can be read at .*nothing; write latest_blessed, the folder"),
        ("model.h5", "text", r'call model.load_weights\(...\) and then model.save\("x.keras"\)'),
        ("model.keras", "text", "Keras cannot load .*model.keras: "),
    ],
)
def test_what_is_no_model_is_refused(tmp_path, name, content, message):
    if content:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigurationError, match=f"base_model: .*{message}"):
        start(make_model(5), tmp_path / name)


def test_newest_version_is_the_base_model(base, tmp_path):
    for version in ("9", "10"):
        (tmp_path / "serving" / version).mkdir(parents=True)
        (tmp_path / "serving" / version / "saved_model.pb").touch()
    (tmp_path / "serving" / "11").mkdir()  # still being copied
    assert location.find(f"{tmp_path}/serving/") == f"{tmp_path}/serving/10"
    assert location.find(str(base[1])) == f"{base[1]}/Format-Serving"


def test_fingerprint_changes_with_the_weights_alone(base, tmp_path):
    before = location.fingerprint(str(base[1]))
    (tmp_path / "base").rename(tmp_path / "elsewhere")
    assert location.fingerprint(f"{tmp_path}/elsewhere") == before
    base[0].get_layer("head").bias.assign([1.0, 2.0])
    base[0].save(f"{tmp_path}/elsewhere/Format-Serving", save_format="tf")
    assert location.fingerprint(f"{tmp_path}/elsewhere") != before


def test_frozen_layers_are_not_trained():
    model = make_model(5, 6)
    warm_start.freeze(model, [r"hidden\d"])
    assert [variable.name for variable in model.trainable_variables] == ["head/kernel:0", "head/bias:0"]
    with pytest.raises(
        ConfigurationError, match="base_model.freeze: 'hidden' matches no layer; the model has x, hidden0, hidden1, head"
    ):
        warm_start.freeze(model, ["head", "hidden"])


def test_frozen_container_freezes_what_is_in_it():
    inner = tf.keras.Input((4,))
    encoder = tf.keras.Model(inner, tf.keras.layers.Dense(3, name="first")(inner), name="encoder")
    inputs = tf.keras.Input((4,), name="x")
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, name="first")(encoder(inputs)))
    warm_start.freeze(model, ["encoder/first"])
    assert [variable.shape for variable in model.trainable_variables] == [(3, 1), (1,)]


def test_moving_averages_start_from_the_base_model(base):
    model = make_model(5, 6)
    model.compile(tf.keras.optimizers.Adam(use_ema=True), "mse")
    model.optimizer.build(model.trainable_variables)
    start(model, base[1])
    for average, variable in zip(model.optimizer._model_variables_moving_average, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(average.numpy(), variable.numpy())


def save(model: tf.keras.Model, folder: Path, words: str) -> None:
    """Saves a base model with a vocabulary."""
    model.save(folder, save_format="tf")
    (folder / "assets").mkdir(exist_ok=True)
    (folder / "assets" / "words_file").write_text(words)


def write_transform(folder: Path, words: str) -> tft.TFTransformOutput:
    """Writes the vocabulary of a transform graph."""
    assets = folder / "transform_fn" / "assets"
    assets.mkdir(parents=True)
    (assets / "words_file").write_text(words)
    (folder / "transformed_metadata").mkdir()
    (folder / "transformed_metadata" / "asset_map").write_text('{"words": "words_file"}')
    return tft.TFTransformOutput(str(folder))


def test_rows_of_a_vocabulary_move_with_their_entries(tmp_path):
    """New entries keep their initial rows; those after the vocabulary move too."""
    old = make_model(5, rows=4)  # a b c and one for other words
    save(old, tmp_path / "old", "a\nb\nc\n")
    transform_output = write_transform(tmp_path / "new", "c\nd\na\ne\nb\n")
    model = make_model(5, rows=7)  # and two for other words
    initial = weights(model)["words/embeddings"]
    with pytest.raises(ConfigurationError, match="or vocabularies for embeddings"):
        start(model, tmp_path / "old", transform_output)
    result = start(model, tmp_path / "old", transform_output, vocabularies={"words": "words"})
    assert (result.weights_taken, result.weights_skipped) == (5, 0)
    a, b, c, other = weights(old)["words/embeddings"]
    np.testing.assert_array_equal(weights(model)["words/embeddings"], [c, initial[1], a, initial[3], b, other, initial[6]])


def test_outputs_of_classes_move_with_them(tmp_path):
    """Also where the hidden layer has as many units as there are classes."""
    old = make_model(2, rows=4)
    old.layers[-1].bias.assign([1.0, 2.0])
    save(old, tmp_path / "old", "yes\nno\n")
    transform_output = write_transform(tmp_path / "new", "no\nyes\n")
    model = make_model(2, rows=4)
    result = start(model, tmp_path / "old", transform_output, vocabularies={"head": "words"})
    assert (result.weights_taken, result.entries_taken, result.reordered) == (5, 2, [])
    before, after = weights(old), weights(model)
    np.testing.assert_array_equal(after["head/bias"], [2.0, 1.0])
    np.testing.assert_array_equal(after["head/kernel"], before["head/kernel"][:, ::-1])
    np.testing.assert_array_equal(after["hidden0/kernel"], before["hidden0/kernel"])
    assert start(model, tmp_path / "old", transform_output).reordered == ["words_file"], "it is not named"
    assert start(model, tmp_path / "old", write_transform(tmp_path / "same", "yes\nno\nmaybe\n")).reordered == []
    wide = make_model(5, rows=4)
    save(wide, tmp_path / "wide", "a\nb\nc\n")
    with pytest.raises(
        ConfigurationError, match=r"3 entries .* and 2 now; no weight that 'hidden0' matches .*: hidden0/kernel"
    ):
        start(make_model(5, rows=4), tmp_path / "wide", transform_output, vocabularies={"hidden0": "words"})


def test_rows_may_start_after_those_for_padding(tmp_path):
    """A model that looks up `ids + 1` has the first entry in row 1."""
    old = make_model(5, rows=5)  # padding, a b c and one for other words
    save(old, tmp_path / "old", "a\nb\nc\n")
    transform_output = write_transform(tmp_path / "new", "c\nd\na\n")
    model = make_model(5, rows=5)
    initial = weights(model)["words/embeddings"]
    result = start(model, tmp_path / "old", transform_output, vocabularies={"words": {"words": 1}})
    assert (result.entries_taken, result.entries_new) == (2, 1)
    padding, a, _, c, other = weights(old)["words/embeddings"]
    np.testing.assert_array_equal(weights(model)["words/embeddings"], [padding, c, initial[2], a, other])
    with pytest.raises(ConfigurationError, match="has 5 rows in the base model, but .* rows 3 to 5"):
        start(model, tmp_path / "old", transform_output, vocabularies={"words": {"words": 3}})


@pytest.mark.parametrize(
    ("lines", "entries"),
    [
        ([b"9 a", b"5 b"], [b"a", b"b"]),
        ([b"-1 [MASK]", b"5.5 b__SPACE__x", b"1e-05 c"], [b"[MASK]", b"b x", b"c"]),
        ([b"a", b"b"], [b"a", b"b"]),
        ([b"5 Main St", b"9 Main St", b"7 a"], [b"5 Main St", b"9 Main St", b"7 a"]),
    ],
)
def test_frequencies_in_vocabularies_are_no_part_of_entries(lines, entries):
    """Transform writes them with `store_frequency=True`; they change with the data."""
    assert vocabularies._strip_frequencies(lines) == entries


def test_vocabularies_that_are_not_there_are_refused(tmp_path):
    make_model(5, rows=4).save(tmp_path / "old", save_format="tf")
    transform_output = write_transform(tmp_path / "new", "c\nd\n")
    for name, message in (
        ("nothing", "no transform has a vocabulary 'nothing'"),
        ("words", "old has no vocabulary 'words'"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            start(make_model(5, rows=7), tmp_path / "old", transform_output, vocabularies={"words": name})


def set_noise(model: tf.keras.Model) -> None:
    generator = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(generator.uniform(0.5, 1.0, weight.shape))


def make_crossed_model() -> tf.keras.Model:
    """Returns a model whose equal layers are made in another order than used."""
    inputs = tf.keras.Input((6,), name="x")
    last, first = tf.keras.layers.Dense(6), tf.keras.layers.Dense(6)
    model = tf.keras.Model({"x": inputs}, last(first(inputs)))
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize("name", ["x.keras", "x.weights.h5"])
def test_equal_layers_keep_their_weights(tmp_path, name):
    tf.keras.backend.clear_session()
    base = make_crossed_model()
    set_noise(base)
    base.save_weights(tmp_path / name) if "weights" in name else base.save(tmp_path / name)
    tf.keras.backend.clear_session()
    for _ in range(3):
        make_crossed_model()
    model = make_crossed_model()
    assert start(model, tmp_path / name).weights_taken == 4
    example = {"x": np.arange(6.0, dtype="float32")[None]}
    np.testing.assert_array_equal(model(example), base(example))


class Doubled(tf.keras.layers.Layer):
    """A layer of the user's that is not registered with Keras."""

    def build(self, input_shape):
        self.factor = self.add_weight(name="factor", shape=(1,), initializer="ones")

    def call(self, inputs):
        return inputs * self.factor


def test_classes_of_the_model_are_known(tmp_path):
    def make():
        inputs = tf.keras.Input((6,), name="x")
        model = tf.keras.Model({"x": inputs}, Doubled(name="doubled")(inputs))
        model.compile("adam", "mse")
        return model

    base = make()
    set_noise(base)
    base.save(tmp_path / "x.keras")
    model = make()
    assert start(model, tmp_path / "x.keras").weights_taken == 1
    np.testing.assert_array_equal(model.weights[0], base.weights[0])


def test_vocabularies_are_no_weights(tmp_path):
    lookup = tf.keras.layers.StringLookup()
    lookup.adapt(["a", "b"])
    layers = [tf.keras.Input((1,), dtype=tf.string), lookup, tf.keras.layers.Embedding(4, 2, name="words")]
    model = tf.keras.Sequential(layers)
    assert [weight.path for weight in model_weights.list_weights(model)] == ["words/embeddings"]
    weight_files.name_weights(model)
    model.save(tmp_path / "model", save_format="tf")
    assert [weight.name for weight in weight_files.read_saved_model(str(tmp_path / "model"))[0]] == ["words/embeddings"]
    np.testing.assert_array_equal(tf.saved_model.load(tmp_path / "model")(tf.constant([["b"]])), model(tf.constant([["b"]])))


def make_model_with_adapted_layers(words: list[str], numbers: np.ndarray) -> tf.keras.Model:
    """Returns a model with layers whose state has as many entries as their data."""
    layers = tf.keras.layers
    text, number = tf.keras.Input((1,), name="text", dtype=tf.string), tf.keras.Input((1,), name="number")
    adapted = [
        layers.TextVectorization(output_mode="tf_idf", max_tokens=9),
        layers.StringLookup(),
        layers.Discretization(num_bins=4),
    ]
    for layer, data in zip(adapted, (words, words, numbers), strict=True):
        layer.adapt(data)
    vectorization, lookup, discretization = adapted
    embedded = [layers.Embedding(9, 3)(lookup(text)), layers.Embedding(4, 3)(discretization(number))]
    features = layers.Concatenate()([vectorization(text), *map(layers.Flatten(), embedded)])
    model = tf.keras.Model({"text": text, "number": number}, layers.Dense(2, name="head")(features))
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize("kind", ["saved_model", "export", "x.keras"])
def test_state_of_adapted_layers_is_that_of_build_model(tmp_path, kind):
    """As their vocabularies; Keras does not know how large it is before it is read."""
    tf.keras.backend.clear_session()
    base = make_model_with_adapted_layers(["a b", "b c"], np.arange(30.0)[:, None])
    path = str(tmp_path / kind)
    if kind == "export":
        base.export(path)
    else:
        base.save(path, **({"save_format": "tf"} if kind == "saved_model" else {}))
    tf.keras.backend.clear_session()
    model = make_model_with_adapted_layers(["b d", "d f", "d", "d b"], np.arange(70.0)[:, None] * 3)
    adapted = [layer for layer in model.layers if hasattr(layer, "adapt")]
    before = [np.asarray(layer([["d"]] if hasattr(layer, "get_vocabulary") else [[100.0]])) for layer in adapted]
    result = start(model, path)
    assert (result.weights_taken, result.weights_skipped) == (4, 0)
    for name in ("embedding", "embedding_1", "head"):
        for weight, value in zip(model.get_layer(name).get_weights(), base.get_layer(name).get_weights(), strict=True):
            np.testing.assert_array_equal(weight, value)
    after = [np.asarray(layer([["d"]] if hasattr(layer, "get_vocabulary") else [[100.0]])) for layer in adapted]
    assert len(adapted) == 3
    np.testing.assert_equal(after, before)
