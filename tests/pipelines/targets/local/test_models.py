"""Tests rollbacks with real pushes, and with ML Metadata as TFX writes it."""

import shutil

import pytest
from pushed_models import Bless, Copy, Model, make_pusher
from tfx.dsl.components.common import resolver
from tfx.types import Channel, standard_artifacts

from tfx_distribute.pipelines.targets import resolvers
from tfx_distribute.pipelines.targets.local import models, runs
from tfx_distribute.trainer_module.errors import ConfigurationError


class Pipeline:
    """A pipeline that pushes models with given contents."""

    def __init__(self, run, folder):
        self._run, self.root, self.serving = run, folder / "runs", folder / "serving"

    def push(self, content):
        model = Model(content=content)
        self._run(self.root, model, Bless(model=model.outputs["model"]), make_pusher(model, self.serving))

    def versions(self):
        return models.list_versions(runs.iterate_runs([self.root]))

    def shown(self):
        return [(content(each), each.is_served, bool(each.rollback_of)) for each in self.versions()]

    def roll_back_to(self, wanted):
        oldest = [version for version in self.versions() if content(version) == wanted][-1]
        return models.roll_back(oldest)

    def baseline(self):
        found = resolver.Resolver(
            strategy_class=resolvers.LatestBlessing,
            model=Channel(type=standard_artifacts.Model),
            model_blessing=Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("latest")
        file = self.root / "baseline"
        self._run(self.root, found, Copy(model=found.outputs["model"], file=str(file)))
        return file.read_text()


def content(version):
    return (version.folder / "saved_model.pb").read_text()


@pytest.fixture
def pipeline(run, tmp_path) -> Pipeline:
    """Returns a pipeline that has pushed two models."""
    made = Pipeline(run, tmp_path)
    for each in ("first", "second"):
        made.push(each)
    return made


def test_a_rollback_and_the_runs_after_it(pipeline):
    assert pipeline.shown() == [("second", True, False), ("first", False, False)]
    assert pipeline.baseline() == "second"
    pipeline.roll_back_to("first")
    after = [("first", True, True), ("second", False, False), ("first", False, False)]
    assert pipeline.shown() == after
    assert pipeline.baseline() == "first", "what is served"
    pipeline.push("second")  # from the cache: nothing has changed
    assert pipeline.shown() == after, "it is not pushed again"
    pipeline.push("third")
    assert pipeline.shown() == [("third", True, False), ("first", False, True), *after[1:]]
    assert pipeline.baseline() == "third"
    assert {version.run.id for version in pipeline.versions() if content(version) == "first"} == {
        pipeline.versions()[-1].run.id
    }


def test_a_rollback_can_be_taken_back(pipeline):
    pipeline.roll_back_to("first")
    pipeline.roll_back_to("second")
    assert [content(version) for version in pipeline.versions()] == ["second", "first", "second", "first"]
    assert pipeline.baseline() == "second"


def test_a_model_that_was_pushed_twice_is_not_withdrawn_by_a_rollback_to_it(pipeline):
    pipeline.push("first")  # from the cache, as after a return to earlier data
    pipeline.push("third")
    pipeline.roll_back_to("first")
    assert pipeline.baseline() == "first"


def test_what_was_not_pushed_is_pushed_once_the_rollback_is_taken_back(pipeline):
    pipeline.roll_back_to("first")
    pipeline.push("second")
    pipeline.roll_back_to("second")
    pipeline.push("third")
    pipeline.push("second")
    assert pipeline.shown()[0] == ("second", True, False)


def test_versions_that_cannot_be_rolled_back_to(pipeline, run, tmp_path):
    with pytest.raises(ConfigurationError, match=r"VERSION: \d+ is served already"):
        pipeline.roll_back_to("second")
    with pytest.raises(ConfigurationError, match="VERSION: 7 does not exist; existing versions: "):
        models.find(pipeline.versions(), "7")
    (pipeline.serving / "7").mkdir()
    with pytest.raises(ConfigurationError, match="no run of this machine has pushed .*/7"):
        models.roll_back(models.find(pipeline.versions(), "7"))
    gone = pipeline.versions()[1]
    shutil.rmtree(gone.folder)
    with pytest.raises(ConfigurationError, match="does not exist"):
        models.find(pipeline.versions(), gone.name)
