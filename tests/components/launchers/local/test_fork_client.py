import sys

from tfx_distribute.components.launchers.local import fork_client
from tfx_distribute.trainer_module.liveness.exposure import Exposure

SERVER = """
print("started by the site")
print("5")
print('{"ready": 1, "exposure": "owner"}', flush=True)
input()
"""


def test_what_python_prints_at_its_start_is_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tfx_distribute.components.fork_client.module_command", lambda module: [sys.executable, "-c", SERVER]
    )
    with fork_client.ForkServer(tmp_path / "log") as server:
        assert server.wait_ready() is Exposure.OWNER
