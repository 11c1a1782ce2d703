import pytest

from tfx_distribute.pipelines.spec.machines import MachineSpec, Toleration, number
from tfx_distribute.pipelines.targets.kubeflow import machines
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings, Secret, Volume

TARGET = KubeflowSettings(
    image="registry.example.com/digits:1",
    pipeline_root="s3://bucket/root",
    service_account="trainer",
    volumes=[Volume(claim="data", mount_path="/data")],
    secrets=[Secret(name="s3", env={"AWS_ACCESS_KEY_ID": "accesskey", "AWS_SECRET_ACCESS_KEY": "secretkey"})],
    image_pull_secrets=["registry"],
    labels={"team": "a"},
)
MACHINES = {
    "cpu": MachineSpec(cpu="500m", memory="2Gi"),
    "gpu": MachineSpec(
        cpu="8",
        memory="32Gi",
        accelerator="nvidia.com/gpu",
        accelerator_count=2,
        shared_memory="8Gi",
        node_selector={"nvidia.com/gpu.product": "NVIDIA-A10G"},
    ),
    "part-of-a-gpu": MachineSpec(accelerator="nvidia.com/mig-1g.5gb"),
    "gke-gpu-spot": MachineSpec(memory="32Gi", accelerator="nvidia-tesla-t4", accelerator_count=4, spot=True),
    "gke-tpu": MachineSpec(accelerator="tpu-v5-lite-podslice", topology="2x2"),
    "gke-cpu-spot": MachineSpec(
        spot=True, node_selector={"pool": "big"}, tolerations=[Toleration(key="big", operator="Exists")]
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_in_all_documents(name, expected):
    machine = MACHINES[name]
    expected(
        f"machines/{name}",
        {
            "resources of a step": machines.make_resource_spec(machine),
            "platform spec of a step": machines.make_executor_config(machine, TARGET, TARGET.labels),
            "pod of a training process": machines.make_pod_template(machine, TARGET),
        },
    )


def test_annotations_of_all_pods():
    target = TARGET.model_copy(
        update={"annotations": {"karpenter.sh/do-not-disrupt": "true", "linkerd.io/inject": "disabled"}}
    )
    machine = MachineSpec()
    annotations = machines.make_pod_template(machine, target)["metadata"]["annotations"]
    assert annotations == {"sidecar.istio.io/inject": "false", **target.annotations}
    config = machines.make_executor_config(machine, target, {})
    assert config["podMetadata"] == {"annotations": target.annotations}


def test_a_pod_that_prometheus_and_log_collectors_read():
    target = TARGET.model_copy(update={"log_format": "json", "metrics_port": 9400})
    template = machines.make_pod_template(MachineSpec(), target)
    assert template["metadata"]["annotations"] == {
        "sidecar.istio.io/inject": "false",
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9400",
    }
    (container,) = template["spec"]["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9400}]
    assert [(variable["name"], variable["value"]) for variable in container["env"][-3:]] == [
        ("TFX_DISTRIBUTE_LOG_FORMAT", "json"),
        ("TFX_DISTRIBUTE_METRICS_PORT", "9400"),
        ("TFX_DISTRIBUTE_METRICS_ADDRESS", "::"),
    ]


def test_a_machine_of_which_nothing_is_said():
    machine = MachineSpec()
    assert machines.make_resource_spec(machine) == {}
    plain = KubeflowSettings(image="i", pipeline_root="gs://b/r")
    assert machines.make_executor_config(machine, plain, {}) == {}


@pytest.mark.parametrize(("quantity", "value"), [("500m", 0.5), ("4", 4), ("1.5", 1.5), ("2Gi", 2**31), ("1G", 10**9)])
def test_quantities(quantity, value):
    assert float(number(quantity)) == value


@pytest.mark.parametrize("quantity", ["4 cores", "16GB", "-1", ""])
def test_what_is_no_quantity(quantity):
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        MachineSpec(memory=quantity)
