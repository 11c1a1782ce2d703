"""Tests the command `manifests`, and what it refuses."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tfx_distribute.pipelines.cli.main import main

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "digits"


def manifests(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["manifests", *map(str, words)])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--target", "vertex"), "PIPELINE: is missing; the roles on Vertex AI follow from the pipeline"),
        (("-p", "epochs=3"), "--parameter: belongs to a pipeline; write PIPELINE too"),
        (("--project", "mine"), "--project: goes with --target vertex, not with --target kubeflow"),
        ((EXAMPLES / "vertex.yaml", "--target", "vertex", "-n", "mine"), "--namespace: goes with --target kubeflow"),
        ((EXAMPLES / "pipeline.yaml", "--target", "vertex"), "targets.vertex: is missing"),
        (("none.yaml", "--target", "vertex"), "none.yaml"),
    ],
)
def test_what_is_refused(words, message):
    code, output = manifests(*words)
    assert code == 2
    assert message in output
    assert len(output.splitlines()) == 1


def test_kubeflow_takes_its_settings_from_the_pipeline_or_the_options(tmp_path):
    document = yaml.safe_load((EXAMPLES / "kubeflow.yaml").read_text())
    document["module"] = str(EXAMPLES / document["module"])
    document["targets"]["kubeflow"] |= {"namespace": "team", "service_account": "trainer"}
    (tmp_path / "kubeflow.yaml").write_text(yaml.safe_dump(document))
    for words, expected in (
        ((), {"kind": "ServiceAccount", "name": "pipeline-runner", "namespace": "kubeflow"}),
        ((tmp_path / "kubeflow.yaml",), {"kind": "ServiceAccount", "name": "trainer", "namespace": "team"}),
        (("-n", "other", "--service-account", "me"), {"kind": "ServiceAccount", "name": "me", "namespace": "other"}),
        ((tmp_path / "kubeflow.yaml", "-n", "other"), {"kind": "ServiceAccount", "name": "trainer", "namespace": "other"}),
    ):
        code, output = manifests(*words)
        assert code == 0, output
        _, binding = yaml.safe_load_all(output)
        assert binding["subjects"] == [expected]


def test_roles_follow_from_the_pipeline(tmp_path):
    def roles(*words: str, **changes: object) -> set[str]:
        document = yaml.safe_load((EXAMPLES / "vertex.yaml").read_text())
        document["module"] = str(EXAMPLES / document["module"])
        for machine in ("Trainer", "ParameterServer"):
            document["resources"][machine].pop("spot")
        document["targets"]["vertex"].pop("boot_disk_size_gb")
        document["targets"]["vertex"] |= changes.pop("vertex", {})
        (tmp_path / "vertex.yaml").write_text(yaml.safe_dump(document | changes))
        code, output = manifests(tmp_path / "vertex.yaml", "--target", "vertex", *words)
        assert code == 0, output
        commands = [line for line in output.splitlines() if line.startswith("gcloud ") and "SUBMITTER" not in line]
        return {f"{line.split()[1]} {line.rpartition('roles/')[2]}" for line in commands}

    in_step = roles()
    assert in_step == {
        "projects aiplatform.user",
        "projects logging.logWriter",
        "storage storage.objectUser",
        "storage storage.legacyBucketReader",
    }
    pools = roles("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")
    assert pools - in_step == {"iam iam.serviceAccountUser"}
    place = "projects/example-project/locations/europe-west4"
    assert roles(vertex={"encryption_spec_key_name": f"{place}/keyRings/r/cryptoKeys/k"}) - in_step == {
        "kms cloudkms.cryptoKeyEncrypterDecrypter"
    }
    assert roles(vertex={"image": "us-docker.pkg.dev/other/team/digits:1"}) - in_step == {
        "artifacts artifactregistry.reader"
    }
    assert roles(vertex={"tensorboard": f"{place}/tensorboards/1"}) - pools == {"storage storage.admin"}
    beam = {
        "runner": "dataflow",
        "project": "example-project",
        "region": "europe-west4",
        "temp_location": "gs://scratch/tmp",
    }
    assert roles(beam=beam) - in_step == {
        "projects dataflow.developer",
        "projects dataflow.worker",
        "iam iam.serviceAccountUser",
        "artifacts artifactregistry.reader",
    }
