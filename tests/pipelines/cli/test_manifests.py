"""Tests the command `manifests`."""

import pytest
import yaml
from click.testing import CliRunner

from tfx_distribute.pipelines.cli.main import main


@pytest.mark.parametrize(
    ("words", "namespace", "account"),
    [
        ((), "kubeflow", "pipeline-runner"),
        (("-n", "team", "--service-account", "trainer"), "team", "trainer"),
    ],
)
def test_an_account_of_a_namespace_gets_the_role(words, namespace, account):
    result = CliRunner().invoke(main, ["manifests", *words])
    assert result.exit_code == 0, result.output
    role, binding = yaml.safe_load_all(result.output)
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == namespace
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]
