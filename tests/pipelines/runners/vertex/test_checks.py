"""Tests what is refused or warned of before a pipeline is compiled for Vertex AI."""

import pytest
from click.testing import CliRunner
from compiled_for_vertex import TARGET, compiled, project

from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.runners.vertex.target import VertexTarget
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.trainer_module.errors import ConfigurationError

REFUSED = {
    "no project": ({"project": None}, {}, (), "targets.vertex.project: is missing; write it, or give --project"),
    "tensorboard": (
        {"tensorboard": "projects/1/locations/europe-west4/tensorboards/2"},
        {},
        (),
        "targets.vertex.service_account: is missing, and only with one can training write to a TensorBoard instance",
    ),
    "local push": ({}, {"push": {"directory": "/serving"}}, (), "push.directory: /serving cannot be reached by a step"),
    "machine of a step that does not wait": (
        {"training": "step"},
        {"resources": {"TrainerStep": {"cpu": 1}}},
        (),
        "resources.TrainerStep: has no effect with training: step",
    ),
    "step on a TPU": (
        {"training": "step", "region": "us-west4"},
        {"resources": {"Trainer": {"accelerator": "tpu-v5-lite-podslice", "topology": "2x2"}}},
        ("strategy=tpu",),
        "targets.vertex.training: a step has no TPU (tpu-v5-lite-podslice); write custom_job or auto",
    ),
    "TPU of several machines": (
        {"region": "us-west4"},
        {"resources": {"Trainer": {"accelerator": "tpu-v5-lite-podslice", "topology": "4x4"}}},
        ("strategy=tpu",),
        "resources.Trainer.topology: 4x4 is several machines",
    ),
    "GPU without strategy of it": (
        {},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4"}}},
        ("strategy=tpu",),
        "resources.Trainer.accelerator: strategy tpu does not train on nvidia-l4",
    ),
    "reduction servers without GPU": (
        {},
        {"resources": {}},
        ("strategy=multi_worker_mirrored", "num_workers=2", "all_reduce=reduction_server"),
        "resources.Trainer.accelerator: is missing, and reduction servers sum what GPUs send",
    ),
    "reduction servers of one machine": (
        {},
        {},
        ("strategy=multi_worker_mirrored", "all_reduce=reduction_server"),
        "all_reduce: reduction_server sums between machines, and num_workers is 1; write all_reduce=auto",
    ),
    "label": ({"labels": {"Team": "a"}}, {}, (), "targets.vertex.labels"),
    "step with a timeout": (
        {"training": "step", "timeout": 60},
        {},
        (),
        "targets.vertex.training: a step has no timeout; write custom_job or auto",
    ),
    "reduction servers of a step": (
        {"training": "step"},
        {},
        ("strategy=multi_worker_mirrored", "num_workers=2", "all_reduce=reduction_server"),
        "all_reduce: reduction_server is Vertex AI's, and a step has none",
    ),
    "spot of a reservation": (
        {"reservation": "projects/p/zones/europe-west4-a/reservations/r"},
        {"resources": {"Trainer": {"spot": True}}},
        (),
        "targets.vertex.reservation: spot machines come from no reservation",
    ),
    "key of another region": (
        {"encryption_spec_key_name": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"},
        {},
        (),
        "is not in europe-west4, where the pipeline runs; write one of that region",
    ),
    "TPU for all": (
        {"region": "us-west4"},
        {"resources": {"default": {"accelerator": "tpu-v5-lite-podslice", "topology": "2x2"}}},
        ("strategy=tpu",),
        "resources.default: a step has no TPU (tpu-v5-lite-podslice); only training has: write it under resources.Trainer",
    ),
    "machine of a step": (
        {},
        {"resources": {"Transform": {"machine_type": "n2-standard-8"}}},
        (),
        "resources.Transform: a step has no machine type (n2-standard-8)",
    ),
    "accelerator of a step": (
        {},
        {"resources": {"Transform": {"accelerator": "nvidia-l5"}}},
        (),
        "resources.Transform.accelerator: vertex has no 'nvidia-l5'; did you mean 'nvidia-l4'",
    ),
    "more CPUs than a step's": (
        {},
        {"resources": {"Transform": {"cpu": 128}}},
        (),
        "resources.Transform: a step has at most 96 CPUs, not 128; ask for less, or have Beam run on other machines",
    ),
    "more memory than a step's": (
        {"training": "step"},
        {"resources": {"Trainer": {"memory": "620G"}}},
        (),
        "resources.Trainer: a step's machine has at most 624 GB of memory, not 626.87",
    ),
    "machine type of reduction servers": (
        {"reduction_server_machine_type": "n2-highmem-96"},
        {},
        (),
        "targets.vertex.reduction_server_machine_type: Vertex AI has no 'n2-highmem-96' for training; write one of",
    ),
    "disk of reduction servers": (
        {"reduction_server_machine_type": "n4-highcpu-16"},
        {},
        (),
        "targets.vertex.reduction_server_machine_type: n4-highcpu-16 does not start from the service's default disk",
    ),
    "parameter servers that are no spot machines": (
        {},
        {"resources": {"Trainer": {"spot": True}, "ParameterServer": {"cpu": 4}}},
        (),
        "resources.ParameterServer.spot: is false, and resources.Trainer.spot true, but Vertex AI takes all machines",
    ),
    "parameter servers on the default machine": (
        {},
        {"resources": {"Trainer": {"spot": True}, "default": {"cpu": 4}}},
        ("strategy=parameter_server", "num_workers=2"),
        "resources.ParameterServer.spot: is false",
    ),
    "TPU of another region": (
        {"region": "europe-west1"},
        {"resources": {"Trainer": {"accelerator": "tpu-v5-lite-podslice", "topology": "2x2"}}},
        ("strategy=tpu",),
        "resources.Trainer.accelerator: europe-west1 has no tpu-v5-lite-podslice for training; write another ",
    ),
    "reservation of another region": (
        {"reservation": "projects/p/zones/us-central1-a/reservations/r"},
        {},
        (),
        "targets.vertex.reservation: projects/p/zones/us-central1-a/reservations/r is not in a zone of europe-west4",
    ),
    "network of a project's id": (
        {"network": "projects/example-project/global/networks/n"},
        {},
        (),
        "targets.vertex.network: projects/example-project/global/networks/n names a project by its id; write its number",
    ),
    "network and interface": (
        {"network": "projects/1/global/networks/n", "psc_interface_config": {"network_attachment": "a"}},
        {},
        (),
        "targets.vertex.network: machines reach a network by peering or through an interface; leave network or",
    ),
    "interface of another region": (
        {"psc_interface_config": {"network_attachment": "projects/p/regions/us-central1/networkAttachments/a"}},
        {},
        (),
        "targets.vertex.psc_interface_config.network_attachment: projects/p/regions/us-central1/networkAttachments/a is",
    ),
    "waiting with another strategy": (
        {"max_wait_duration": 60},
        {},
        (),
        "targets.vertex.max_wait_duration: only FLEX_START waits",
    ),
    "waiting for a GPU that is not waited for": (
        {"scheduling_strategy": "FLEX_START"},
        {},
        (),
        "FLEX_START is for some kinds of GPU, and resources.Trainer.accelerator is nvidia-tesla-t4; write one of nvidia-l4",
    ),
    "waiting for spot machines": (
        {"scheduling_strategy": "FLEX_START"},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4", "spot": True}}},
        (),
        "FLEX_START is a way to get machines, and so is resources.Trainer.spot; leave one of them out",
    ),
    "waiting for too long a training": (
        {"scheduling_strategy": "FLEX_START", "timeout": 604801},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4"}}},
        (),
        "targets.vertex.timeout: with FLEX_START, training takes at most seven days; write 604800",
    ),
    "waiting for machines of several kinds": (
        {"scheduling_strategy": "FLEX_START"},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4"}}},
        ("strategy=parameter_server", "num_workers=2"),
        "FLEX_START gives all processes the same kind of machine, and this training has several; write a strategy without",
    ),
    "disk of a machine": (
        {"boot_disk_type": "pd-standard"},
        {"resources": {"Trainer": {"accelerator": "nvidia-l4"}}},
        (),
        "targets.vertex.boot_disk_type: g2-standard-4 does not start from pd-standard; write resources.Trainer.",
    ),
    "disk of a step": (
        {},
        {"resources": {"Transform": {"boot_disk_size_gb": 200}}},
        (),
        "resources.Transform: a step has no boot_disk_size_gb; only training has",
    ),
    "no such component": ({}, {"resources": {"Traner": {}}}, (), "resources.Traner: the pipeline has no such component"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    target, changes, words, message = REFUSED[case]
    targets = {"vertex": {name: value for name, value in {**TARGET, **target}.items() if value is not None}}
    file = project(tmp_path, "digits", targets=targets, **changes)
    with pytest.raises(ConfigurationError) as error:
        compiled(file, *words)
    assert message in str(error.value)
    parameters = [word for parameter in words for word in ("-p", parameter)]
    result = CliRunner().invoke(main, ["validate", str(file), "--target", "vertex", *parameters])
    assert (message in result.output) == (case != "no such component"), "only TFX knows all components"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--host", "http://k"), "--host: goes with --target kubeflow, not with --target vertex"),
        (("--start-time", "2026-01-01T00:00:00Z"), "--start-time: belongs to a schedule; write --cron too"),
        (("--region", "Europe"), "--region: 'Europe' is not allowed"),
        (("--labels", "team"), "--labels: 'team' is not a label; write KEY=VALUE"),
        (("--region", "europe-west99"), "--region: europe-west99: Unsupported region for Vertex AI"),
        (("--cron", "0 3 * * *", "--wait"), "--wait: is for one run, and --cron makes a schedule; leave one of them out"),
    ],
)
def test_options_that_do_not_go_together(words, message, tmp_path):
    result = CliRunner().invoke(main, ["submit", str(project(tmp_path, "taxi")), "--target", "vertex", *words])
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert message in result.output


@pytest.mark.parametrize(
    ("machine", "target", "start"),
    [
        (
            {"accelerator": "nvidia-h100-80gb"},
            {},
            "resources.Trainer.accelerator_count: Compute Engine starts a3-highgpu-1g ",
        ),
        ({"accelerator": "nvidia-h100-80gb", "spot": True}, {}, ""),
        ({"accelerator": "nvidia-h100-80gb"}, {"scheduling_strategy": "FLEX_START"}, ""),
        ({"accelerator": "nvidia-h100-80gb", "accelerator_count": 8}, {}, "resources.Trainer: a machine has 8 nvidia-h100"),
        ({"accelerator": "nvidia-l4"}, {}, ""),
    ],
)
def test_machines_that_may_not_start_or_are_idle(tmp_path, machine, target, start):
    changes = {"resources": {"Trainer": machine}, "targets": {"vertex": TARGET | target}}
    spec = loader.override(loader.load(project(tmp_path, "digits", **changes)), {"strategy": "one_device"})
    assert [warning.startswith(start) for warning in VertexTarget(spec).find_warnings()] == [True] * bool(start)
