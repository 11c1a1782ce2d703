"""Tests the exit codes of a pipeline's step in its container."""

import argparse
import json

import leaving
import pytest

from tfx_distribute.components.beam import patches
from tfx_distribute.components.container import __main__ as kubeflow
from tfx_distribute.components.container import vertex
from tfx_distribute.trainer_module.errors import DataError


def run_on_kubeflow(name: str, executor_input: str) -> int:
    interface = json.dumps({"inputs": {}, "outputs": {}, "integer": [], "double": []})
    words = ["--class", f"leaving.{name}", "--executor-input", executor_input, "--interface", interface]
    return kubeflow.main(["execute", *words])


def run_on_vertex(name: str, executor_input: str) -> int:
    flags = {"executor_class_path": f"leaving.{name}", "json_serialized_invocation_args": executor_input}
    return vertex.main((argparse.Namespace(**flags, json_serialized_inputs_spec_args=None), []))


@pytest.mark.parametrize("run", [run_on_kubeflow, run_on_vertex])
def test_step_has_succeeded_only_if_its_executor_has_returned(run, tmp_path, capsys):
    output = tmp_path / "executor_output.json"
    executor_input = json.dumps({"inputs": {}, "outputs": {"outputFile": str(output)}})
    assert run("Executor", executor_input) == 1
    assert not output.exists()
    assert f"sys.exit(0) was called in {leaving.__file__}, line 13" in capsys.readouterr().err
    assert run("WorkingExecutor", executor_input) == 0
    assert output.exists()


def test_step_whose_executor_returns_an_error_fails(tmp_path, capsys):
    output = tmp_path / "executor_output.json"
    executor_input = json.dumps({"inputs": {}, "outputs": {"outputFile": str(output)}})
    assert run_on_kubeflow("RejectingExecutor", executor_input) == 1
    assert "the data were rejected" in capsys.readouterr().err
    with pytest.raises(DataError, match="the data were rejected"):
        run_on_vertex("RejectingExecutor", executor_input)
    assert not output.exists()


@pytest.mark.parametrize("run", [run_on_kubeflow, run_on_vertex])
def test_beam_is_prepared(run, tmp_path, monkeypatch):
    installed = []
    monkeypatch.setattr(patches, "install", lambda: installed.append(run))
    executor_input = json.dumps({"inputs": {}, "outputs": {"outputFile": str(tmp_path / "executor_output.json")}})
    assert run("WorkingExecutor", executor_input) == 0
    assert installed == [run]
