"""Tests what the launcher says about clusters and images that do not fit.

It has the permissions of docs/trainer-role.yaml. Each test leaves the
namespace as it was.
"""

import json

import pytest
from cluster_jobs import JOB
from real_cluster import CLAIM

from tfx_distribute.pipelines.targets.kubeflow.settings import Volume
from tfx_distribute.trainer_module.errors import TrainingError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


def test_an_image_without_the_package(start):
    error = start(f"exec python -S -m tfx_distribute.trainer_module --job {JOB}").wait()  # -S hides all packages
    assert isinstance(error, TrainingError)
    assert "No module named 'tfx_distribute'" in str(error)
    assert "the image lacks tfx-distribute" in str(error)


def test_an_image_without_python(start):
    error = start(["no-such-python", "-m", "tfx_distribute.trainer_module"]).wait()
    assert isinstance(error, TrainingError)
    assert "the image lacks tfx-distribute" in str(error)


def test_a_volume_that_is_not_shared(start):
    error = start(None, pod={"volumes": []}).wait()
    assert isinstance(error, TrainingError)
    assert f"--job: {JOB} cannot be read: No such file or directory; the step that started this process wrote it" in str(
        error
    )
    assert "ReadWriteMany" in str(error)


def test_an_image_of_another_version(start, namespace):
    words = f"mkdir -p /shared/training && echo '{json.dumps({'version': '0.0.1'})}' > {JOB}"
    namespace.run("write-job", ["sh", "-c", words])
    error = start(None, volumes=[Volume(claim=CLAIM, mount_path="/shared")]).wait()
    assert isinstance(error, TrainingError)
    assert "but the step that started it has 0.0.1; run both with the same image" in str(error)
