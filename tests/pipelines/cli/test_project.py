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
        (("--target", "vertex"), "PIPELINE: is missing"),
        (("-p", "epochs=3"), "--parameter: belongs to a pipeline; write PIPELINE too"),
        (("--project", "mine"), "--project: goes with --target vertex, not with --target kubeflow"),
        ((EXAMPLES / "vertex.yaml", "--target", "vertex", "-n", "mine"), "--namespace: goes with --target kubeflow"),
        ((EXAMPLES / "pipeline.yaml", "--target", "vertex"), "targets.vertex: is missing"),
        ((EXAMPLES / "vertex.yaml", "--target", "vertex"), "--target: runs on vertex need no permissions"),
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
