"""Tests the image that the Dockerfile builds, in pods."""

import pytest
from real_cluster import make_pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# Everything that a step or a training process imports, on any target.
IMPORTS = """
import warnings; warnings.simplefilter("ignore")
import apache_beam, google.cloud.aiplatform, keras, kubernetes, tf_keras
import tensorflow_data_validation, tensorflow_transform, tfx.v1
import tensorflow_model_analysis as tfma
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor
from tfx_distribute.components.container import __main__
from tfx_distribute.components.evaluator import executor
from tfx_distribute.trainer_module import __main__
import digits_data, model
tfma.EvalConfig, tfma.__version__
print("imported")
"""


def test_steps_find_all_packages(namespace):
    printed = namespace.run("imports", ["python", "-c", IMPORTS])
    assert printed.splitlines()[-1] == "imported"
    assert "Error importing" not in printed, "TensorFlow Model Analysis goes on without what it does not find"


def test_processes_have_no_privileges(namespace):
    """In a pod that sets no user."""
    write = "touch /pipeline/file 2>/dev/null || echo refused"
    words = ["sh", "-c", f"id --user --name; grep CapEff /proc/self/status; {write}"]
    pod = make_pod("user", namespace.image, words)
    del pod["spec"]["securityContext"], pod["spec"]["containers"][0]["securityContext"]
    namespace.apply(pod)
    assert namespace.wait_for_end("user") == "Succeeded"
    user, capabilities, answer = namespace.log("user").splitlines()
    assert user == "trainer"
    assert int(capabilities.split()[1], 16) == 0
    assert answer == "refused"


def test_nothing_is_there_that_only_builds_and_tests_need(namespace):
    packages = "/opt/venv/lib/python3.*/site-packages"
    unneeded = f"{packages}/tensorflow/include {packages}/pytest {packages}/nvidia /usr/bin/g++"
    of_no_use = "\\( -name '*.a' -o -type d -name tests \\)"
    find = f"find {packages} -path '*/numpy/_core' -prune -o {of_no_use} -print"  # NumPy 2 imports some of its tests
    script = f"{find}; ls -d {unneeded} 2>/dev/null; du -sm /opt/venv"
    *found, size = namespace.run("contents", ["sh", "-c", script]).splitlines()
    assert not found
    assert int(size.split()[0]) < 2400, "MiB"


def test_programs_find_the_driver_of_gpus_where_google_mounts_it(namespace):
    assert namespace.run("driver", ["printenv", "LD_LIBRARY_PATH"]).strip() == "/usr/local/nvidia/lib64"


def test_gpus_that_an_image_for_cpus_was_given_are_missed(namespace):
    code = (
        "from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, REQUESTED_GPUS\n"
        "from tfx_distribute.trainer_module.job.training_job import Distribution\n"
        "from tfx_distribute.trainer_module.strategies import factory\n"
        "try:\n"
        "    factory.check_requested_gpus(Distribution('one_device'), CHIEF_TASK, {REQUESTED_GPUS: '1'})\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    message = namespace.run("gpus", ["python", "-c", code])
    assert "is built without CUDA" in message
    assert "build the image with --build-arg ACCELERATOR=gpu" in message
