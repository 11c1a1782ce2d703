"""Reads a compiled pipeline as the newest Kubeflow Pipelines does.

Unknown fields are errors. Runs in an environment with that version:

.venv-kfp/bin/python tests/fakes/strict_kfp.py FILE.yaml
"""

import sys

import yaml
from google.protobuf import json_format
from kfp.kubernetes import kubernetes_executor_config_pb2
from kfp.pipeline_spec import pipeline_spec_pb2


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        pipeline, platform = yaml.safe_load_all(file)
    json_format.ParseDict(pipeline, pipeline_spec_pb2.PipelineSpec())
    deployment = json_format.ParseDict(pipeline["deploymentSpec"], pipeline_spec_pb2.PipelineDeploymentConfig())
    json_format.ParseDict(platform, pipeline_spec_pb2.PlatformSpec())
    configs = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for config in configs.values():
        json_format.ParseDict(config, kubernetes_executor_config_pb2.KubernetesExecutorConfig())
    print(f"{len(deployment.executors)} executors, {len(configs)} of them configured")


if __name__ == "__main__":
    main(sys.argv[1])
