"""Settings of pods, and a distribution of each strategy, for tests of manifests."""

from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.trainer_module.job.training_job import Distribution

IMAGE = "registry.example.com/digits:1"


def pod(**limits: str) -> dict:
    container = {"name": "tensorflow", "image": IMAGE, "resources": {"limits": limits}}
    return {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [container]}}


SETTINGS = KubernetesSettings(
    name="digits",
    worker=pod(**{"nvidia.com/gpu": "2", "memory": "32Gi"}),
    parameter_server=pod(memory="8Gi"),
    training_dir="/shared/training",
    labels={"team": "a"},
)
DISTRIBUTIONS = {
    "default": Distribution(),
    "one_device": Distribution("one_device"),
    "mirrored": Distribution("mirrored", accelerator_count=2),
    "central_storage": Distribution("central_storage", accelerator_count=2),
    "multi_worker_mirrored": Distribution("multi_worker_mirrored", num_workers=3),
    "parameter_server": Distribution("parameter_server", num_workers=2, num_parameter_servers=2),
    "tpu": Distribution("tpu"),
    "model_parallel": Distribution("model_parallel", mesh="1x2"),
}
