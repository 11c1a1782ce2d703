"""Tests what a run takes from the cache after people have moved and removed files."""

import shutil
from pathlib import Path

import pytest
from pushed_models import Bless, Copy, Model, make_pusher
from tfx.dsl.components.common import importer, resolver
from tfx.orchestration import metadata
from tfx.types import Channel, standard_artifacts

from tfx_distribute.pipelines.targets import resolvers
from tfx_distribute.pipelines.targets.local import stored_artifacts
from tfx_distribute.trainer_module.errors import ConfigurationError


def pushing(model, serving):
    return model, make_pusher(model, serving)


def served(serving):
    latest = max(serving.iterdir(), key=lambda folder: int(folder.name))
    return (latest / "saved_model.pb").read_text()


def model_uris(root):
    with metadata.Metadata(metadata.sqlite_metadata_connection_config(str(root / "metadata.sqlite"))) as handle:
        return [artifact.uri for artifact in handle.store.get_artifacts_by_type("Model")]


def test_a_folder_that_was_renamed_keeps_its_own_outputs(run, tmp_path):
    """Another run may have taken its place, with the same numbers."""
    root, archived, serving = tmp_path / "runs", tmp_path / "archived", tmp_path / "serving"
    assert run(root, *pushing(Model(content="first"), serving)) == set()
    root.rename(archived)
    assert run(root, *pushing(Model(content="second"), serving)) == set()
    assert run(archived, *pushing(Model(content="first"), serving)) == {"Model"}, "and another version is served"
    assert served(serving) == "first"
    (uri,) = model_uris(archived)
    assert Path(uri).is_relative_to(archived)
    assert (Path(uri) / "Format-Serving" / "saved_model.pb").read_text() == "first"


def test_what_was_removed_is_made_again(run, tmp_path):
    assert run(tmp_path, Model(content="first")) == set()
    assert run(tmp_path, Model(content="first")) == {"Model"}
    shutil.rmtree(tmp_path / "artifacts" / "Model" / "model")
    assert run(tmp_path, Model(content="first")) == set()


def test_what_is_back_is_taken_again(run, tmp_path):
    """Its disk may not have been mounted for a while."""
    artifacts, elsewhere = tmp_path / "artifacts", tmp_path / "elsewhere"
    assert run(tmp_path, Model(content="first")) == set()
    artifacts.rename(elsewhere)
    assert run(tmp_path, Model(content="second")) == set()
    (artifacts / "Model" / "model").rename(tmp_path / "second")
    (elsewhere / "Model" / "model").rename(artifacts / "Model" / "model")
    assert run(tmp_path, Model(content="first")) == {"Model"}


def test_what_was_only_imported_stays_where_it_is(run, tmp_path):
    base = tmp_path / "other" / "artifacts" / "Trainer" / "model" / "7"
    base.mkdir(parents=True)
    for _ in range(2):
        run(tmp_path / "runs", importer.Importer(source_uri=str(base), artifact_type=standard_artifacts.Model))
    assert set(model_uris(tmp_path / "runs")) == {str(base)}


def test_a_model_is_pushed_again_only_where_its_version_has_been_removed(run, tmp_path):
    serving = tmp_path / "serving"

    def push():
        return run(tmp_path / "runs", *pushing(Model(content="first"), serving))

    assert push() == set()
    (first,) = serving.iterdir()
    assert push() == {"Model", "Pusher"}
    assert list(serving.iterdir()) == [first]
    shutil.rmtree(first)
    assert push() == {"Model"}
    assert served(serving) == "first"
    assert push() == {"Model", "Pusher"}
    assert len(list(serving.iterdir())) == 1


def test_two_pipelines_of_one_folder_do_not_push_to_one_place(run, tmp_path):
    serving = tmp_path / "serving"
    run(tmp_path, *pushing(Model(content="first"), serving))
    with metadata.Metadata(metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.sqlite"))) as opened:
        with pytest.raises(ConfigurationError, match="and the pipeline mine pushes to .*/serving too"):
            stored_artifacts.check_pushes(opened.store, "other", str(serving))
        stored_artifacts.check_pushes(opened.store, "mine", str(serving))
        stored_artifacts.check_pushes(opened.store, "other", str(tmp_path / "elsewhere"))


def test_a_model_is_pushed_again_where_a_later_one_is_served(run, tmp_path):
    serving = tmp_path / "serving"
    for content, cached in (("first", set()), ("second", set()), ("first", {"Model"}), ("first", {"Model", "Pusher"})):
        assert run(tmp_path / "runs", *pushing(Model(content=content), serving)) == cached
        assert served(serving) == content
    shutil.rmtree(max(serving.iterdir(), key=lambda folder: int(folder.name)))
    assert run(tmp_path / "runs", *pushing(Model(content="second"), serving)) == {"Model", "Pusher"}, "it is served again"
    (serving / "latest").mkdir()
    assert run(tmp_path / "runs", *pushing(Model(content="second"), serving)) == {"Model", "Pusher"}


def test_the_latest_blessed_model_is_that_of_the_latest_run(run, tmp_path):
    """That run may have taken its model, and the blessing, from the cache."""

    def latest():
        return resolver.Resolver(
            strategy_class=resolvers.LatestBlessing,
            model=Channel(type=standard_artifacts.Model),
            model_blessing=Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("latest")

    for content in ("first", "second", "first"):
        model = Model(content=content)
        run(tmp_path, model, Bless(model=model.outputs["model"]))
    found = latest()
    run(tmp_path, found, Copy(model=found.outputs["model"], file=str(tmp_path / "found")))
    assert (tmp_path / "found").read_text() == "first"
    for folder in (tmp_path / "artifacts" / "Model" / "model").iterdir():
        if (folder / "Format-Serving" / "saved_model.pb").read_text() == "first":
            shutil.rmtree(folder)
    found = latest()
    run(tmp_path, found, Copy(model=found.outputs["model"], file=str(tmp_path / "found")))
    assert (tmp_path / "found").read_text() == "second", "the other one is gone"
