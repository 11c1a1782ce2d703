"""Runs components in TFX's interactive context, as a notebook does."""

import builtins
import sys
from pathlib import Path

import pytest
from tfx import v1 as tfx
from tfx.types import standard_artifacts

from tfx_distribute.components import Pusher, Sharder, Trainer
from tfx_distribute.components.launchers.local import launcher as local_launcher

SCHEMA = """
feature { name: "pixels" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 64 } } }
feature { name: "digit" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.mark.e2e
def test_components_run_in_a_notebook(tmp_path, monkeypatch, fork_server):
    # It needs a package of notebooks, which TFX 1.21 does not install.
    interactive = pytest.importorskip("tfx.orchestration.experimental.interactive.interactive_context")
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    monkeypatch.chdir(DIGITS)
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as in a notebook
    import digits_data

    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "schema.pbtxt").write_text(SCHEMA)
    context = interactive.InteractiveContext(pipeline_root=str(tmp_path / "root"))

    def run(component):
        context.run(component, beam_pipeline_args=["--sdk_container_image=none"])
        return component.outputs

    examples = run(digits_data.DigitsExampleGen())["examples"]
    schema = run(tfx.dsl.Importer(str(tmp_path / "schema"), standard_artifacts.Schema))["result"]
    sharded = run(Sharder(examples=examples, schema=schema, num_workers=2))["sharded_examples"]
    with local_launcher.settings(local_launcher.LocalLauncherSettings(server=fork_server)):
        trained = run(
            Trainer(
                examples=sharded,
                schema=schema,
                build_model="model.build_model",
                label="digit",
                strategy="multi_worker_mirrored",
                num_workers=2,
                per_replica_batch_size=32,
                epochs=1,
                hparams={"hidden_units": 16, "learning_rate": 0.002},
            )
        )
    serving = tfx.proto.PushDestination.Filesystem(base_directory=str(tmp_path / "serving"))
    run(Pusher(model=trained["model"], push_destination=tfx.proto.PushDestination(filesystem=serving)))
    (version,) = (tmp_path / "serving").iterdir()
    assert (version / "saved_model.pb").is_file()
    (model,) = trained["model"].get()
    assert model.get_int_custom_property("num_replicas") == 2
