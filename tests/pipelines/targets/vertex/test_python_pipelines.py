"""Compiles pipelines that are written in Python for Vertex AI."""

from by_hand import latest_blessed, make_model, trained, two_trainers
from compiled_for_vertex import TARGET, read_launcher
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies import latest_artifact_strategy
from tfx.orchestration.pipeline import Pipeline
from tfx.types import channel, standard_artifacts

from tfx_distribute.components.launchers import registry
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.targets.vertex import compiler
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings


def test_a_pipeline_written_by_hand_is_told_of_the_target_too():
    handwritten = trained("gs://bucket/root")
    before = {component.id: dict(component.exec_properties) for component in handwritten.components}
    package = compiler.compile_pipeline(handwritten, VertexSettings(**TARGET), {})
    assert read_launcher(package).image == TARGET["image"]
    assert read_launcher(package).training == "custom_job", "two workers"
    assert {component.id: dict(component.exec_properties) for component in handwritten.components} == before


def test_each_trainer_has_its_machine_and_its_folder():
    machines = {"Small": MachineSpec(cpu="4", memory="8Gi"), "Trainer": MachineSpec(machine_type="n1-highmem-64")}
    handwritten = Pipeline("by-hand", "gs://bucket/root", components=two_trainers())
    spec = compiler.compile_pipeline(handwritten, VertexSettings(**TARGET), machines).job["pipelineSpec"]
    for name, worker, training in (("Small", "n2-standard-4", "auto"), ("Large", "n1-highmem-64", "custom_job")):
        inputs = {
            key: value["runtimeValue"]["constantValue"].get("stringValue")
            for key, value in spec["root"]["dag"]["tasks"][name]["inputs"]["parameters"].items()
        }
        launcher = registry.from_json(inputs["launcher"])
        assert (launcher.worker, launcher.training) == ({"machine_type": worker}, training)
        assert inputs["checkpoint_dir"] == f"gs://bucket/root/by-hand/checkpoints/{name}"


def test_resolvers_wait_for_what_the_pipeline_says():
    models = channel.Channel(type=standard_artifacts.Model)
    latest = resolver.Resolver(latest_artifact_strategy.LatestArtifactStrategy, model=models).with_id("latest")
    blessed = latest_blessed()
    first, last = make_model(size=1).with_id("first"), make_model(size=1).with_id("last")
    blessed.add_upstream_node(first)
    latest.add_upstream_node(blessed)
    last.add_upstream_node(latest)
    handwritten = Pipeline("by-hand", "gs://bucket/root", components=[first, blessed, latest, last])
    tasks = compiler.compile_pipeline(handwritten, VertexSettings(**TARGET), {}).job["pipelineSpec"]["root"]["dag"]["tasks"]
    assert {name: task.get("dependentTasks") for name, task in tasks.items()} == {
        "first": None,
        "blessed-model-blessing-resolver": ["first"],
        "blessed-model-resolver": None,  # it reads what the one before has found
        "latest": ["blessed-model-resolver"],
        "last": ["latest"],
    }
