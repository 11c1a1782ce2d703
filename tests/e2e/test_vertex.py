"""Tests a pipeline on Vertex AI, from its file to the pushed model.

Vertex AI itself is a stand-in, its machines are processes, and its bucket is a folder;
the compiled document, the SDK that submits it, each task's command, the CustomJob, its
replicas' commands, TFX, Beam and TensorFlow are real.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import example_project
import pytest
import tensorflow as tf
import yaml
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from kubeflow_pipelines import Document, Run
from vertex_api import VertexApi
from vertex_pipelines import VertexPipelines
from vertex_pools import Options

from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.targets.vertex import client as vertex_client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"
BUCKET = "gs://example-bucket"


@dataclass
class Cloud:
    """A project on Vertex AI with a bucket, and an image with a folder's content."""

    folder: Path
    bucket: Path
    image: Path
    api: VertexApi
    pipelines: VertexPipelines
    command: Callable[..., Any]

    def compiled(self, example: str, *parameters: str, **changes: Any) -> Path:
        """Compiles an example with `tfx-distribute`; puts its file into the image."""
        # Of the documents.
        shown = yaml.safe_load((EXAMPLES / "digits" / "vertex.yaml").read_text())
        parts = {name: shown[name] for name in ("push", "resources", "targets")}
        example_project.copy(self.image, example, **(parts | changes))
        # A process that was given GPUs does not train on the CPU unless it is told to.
        words = [word for parameter in ("accelerator_type=cpu", *parameters) for word in ("-p", parameter)]
        output = self.folder / f"{example}.json"
        done = self.command("compile", self.file, "--target", "vertex", "-o", output, *words)
        assert done.code == 0, done.output
        return output

    @property
    def file(self) -> Path:
        """Returns the pipeline file."""
        return self.image / "pipeline.yaml"

    def submitted(self, compiled: Path, **arguments: Any) -> tuple[Document, str]:
        """Submits a pipeline; returns the service's document and its job's id."""
        target = loader.load(self.file).targets.vertex
        assert target is not None
        job = vertex_client.make_job(json.loads(compiled.read_text()), target)
        job["runtimeConfig"]["parameters"] |= {
            name: {"stringValue" if isinstance(value, str) else "intValue": value} for name, value in arguments.items()
        }
        with self.api.connected():
            name = vertex_client.VertexRuns(target.project, target.region).submit(job).id
        return json_format.MessageToDict(types.PipelineJob.pb(self.api.get(name))), name.rpartition("/")[2]

    @property
    def jobs(self) -> list[types.CustomJob]:
        """Returns the service's current documents of all CustomJobs."""
        return self.api.all("customJobs")

    def said(self, job: types.CustomJob, replica: str) -> list[Document]:
        """Returns the progress reports of a training process, from all its starts."""
        lines = self.api.printed(job.name, replica).splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]

    def phases(self, job: types.CustomJob, replica: str) -> list[str]:
        """Returns the phases of a training process, from all of its starts."""
        return [report["phase"] for report in self.said(job, replica)]

    def left(self) -> list[str]:
        """Returns the command lines of the processes of this project."""
        lines = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended in the meantime
                lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return [line[:200] for line in lines if str(self.folder) in line]


@pytest.fixture
def cloud(tmp_path, command, forked) -> Iterator[Cloud]:
    bucket, tasks, jobs, temporary = (tmp_path / name for name in ("bucket", "tasks", "jobs", "tmp"))
    for folder in (bucket, tasks, jobs, temporary):
        folder.mkdir()
    image = tmp_path / "image"
    environment = {"PYTHONPATH": str(image), "TMPDIR": str(temporary)}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "2", "no_proxy": "127.0.0.1"}
    options = Options(environment=environment, grace=10.0)
    with VertexApi(jobs, options, project="example-project", location="europe-west4") as api:
        arguments = [api.address, api.project, api.location]
        connected = dict.fromkeys(("Trainer", "Tuner"), arguments)
        places = {BUCKET: f"file://{bucket}"}
        pipelines = VertexPipelines(tasks, places, environment, connected, forked=forked)
        yield Cloud(tmp_path, bucket, image, api, pipelines, command)


def model(run: Run) -> Document:
    metadata: Document = run.outputs["Trainer"]["model"]["metadata"]
    return metadata


def machines(job: types.CustomJob) -> list[tuple[int, str]]:
    return [(pool.replica_count, pool.machine_spec.machine_type) for pool in job.job_spec.worker_pool_specs]


def test_digits_on_worker_pools(cloud):
    parameters = ("strategy=multi_worker_mirrored", "num_workers=2")
    compiled = cloud.compiled("digits", *parameters)
    document, job_id = cloud.submitted(compiled, epochs=12)
    assert document["pipelineSpec"] == json.loads(compiled.read_text())["pipelineSpec"]
    assert document["serviceAccount"] == "trainer@example-project.iam.gserviceaccount.com"
    cloud.pipelines.new_processes = ("Trainer",)
    run = cloud.pipelines.run(document, job_id)
    assert run.steps[-1] == "Pusher"
    (pushed,) = (cloud.bucket / "serving").glob("*/saved_model.pb")
    assert tf.saved_model.load(str(pushed.parent)).signatures["serving_default"]
    trained = model(run)
    assert (trained["strategy"], trained["num_replicas"], trained["num_workers"]) == ("multi_worker_mirrored", 2, 2)
    assert trained["training_val_accuracy"] > 0.9
    assert run.outputs["Evaluator"]["blessing"]["metadata"]["blessed"] == 1

    (job,) = cloud.jobs
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert machines(job) == [(1, "g2-standard-12"), (1, "g2-standard-12")]
    assert job.job_spec.scheduling.strategy.name == "SPOT"
    assert job.job_spec.service_account == "trainer@example-project.iam.gserviceaccount.com"
    pool = job.job_spec.worker_pool_specs[1]
    assert (pool.machine_spec.accelerator_type.name, pool.machine_spec.accelerator_count) == ("NVIDIA_L4", 1)
    assert (pool.disk_spec.boot_disk_size_gb, pool.container_spec.image_uri.rpartition("/")[2]) == (200, "digits:1-gpu")
    for replica in ("workerpool0-0", "workerpool1-0"):
        phases = cloud.phases(job, replica)
        assert (phases.count("start"), phases[-1]) == (1, "done"), cloud.api.printed(job.name, replica)
    log = run.logs["Trainer"]
    assert (
        f"created CustomJob {job.name}: https://console.cloud.google.com/vertex-ai/locations/europe-west4/training/" in log
    )
    assert f"CustomJob {job.name}: running" in log
    assert f"CustomJob {job.name}: succeeded" in log
    trainer = Path(run.outputs["Trainer"]["model"]["uri"].removeprefix("file://")).parent
    folders = (cloud.bucket / "pipelines" / "digits" / "checkpoints", *trainer.glob(".training/*/inputs"))
    assert [path for folder in folders for path in folder.rglob("*") if path.is_file()] == [], "what nobody needs any more"
    assert cloud.left() == [], "the processes of its pools"


def test_files_are_looked_at_before_they_are_read(cloud):
    """The service runs the driver of TFX's ExampleGen before the step itself."""
    data = {"csv": f"{BUCKET}/data", "splits": {"train": 2, "eval": 1}}
    document = json.loads(cloud.compiled("taxi", data=data).read_text())
    simple = Path(tf.__file__).parents[1] / "tfx/examples/chicago_taxi_pipeline/data/simple"
    shutil.copytree(simple, cloud.bucket / "data")
    run = cloud.pipelines.run(document, "taxi-1", only={"CsvExampleGen"})
    examples = run.outputs["CsvExampleGen"]["examples"]
    assert "num_files:1," in examples["metadata"]["input_fingerprint"]
    assert json.loads(examples["metadata"]["split_names"]) == ["eval", "train"]
    assert list(Path(examples["uri"].removeprefix("file://")).glob("Split-train/*.gz"))


def test_a_scheduled_run_reads_the_last_day_that_had_ended(cloud):
    """However late it starts; and runs without a schedule, that or the newest."""
    for day in ("2026-11-01", "2026-11-02", "2026-11-03"):
        (cloud.bucket / "data" / day).mkdir(parents=True)
        (cloud.bucket / "data" / day / "data.csv").write_text("x,label\n1,0\n2,1\n3,0\n4,1\n")
    compiled = cloud.compiled("taxi", data={"csv": f"{BUCKET}/data/{{YYYY}}-{{MM}}-{{DD}}"})
    spans = []
    for span, at in (("scheduled", "2026-11-03T00:30:00Z"), ("scheduled", "2026-11-02T01:00:00Z"), ("", "")):
        document, job = cloud.submitted(compiled, span=span)
        run = cloud.pipelines.run(document, job, only=["CsvExampleGen"], scheduled_at=at)
        spans.append(run.outputs["CsvExampleGen"]["examples"]["metadata"]["spans"])
    assert spans == ["2026-11-02", "2026-11-01", "2026-11-03"]
