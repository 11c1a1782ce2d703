"""Starts a Beam worker, as a job service asks for one with `PROCESS`.

    tfx-distribute-beam-worker --id=ID --provision_endpoint=HOST:PORT

Beam has a program for this in its containers only (`boot`). It installs packages, which
this does not: the worker has those of this environment.
"""

import argparse
import os

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, endpoints_pb2
from google.protobuf import json_format, text_format

from tfx_distribute.components import timeouts
from tfx_distribute.components.beam import worker_process
from tfx_distribute.trainer_module.liveness import exit_functions


def main(argv: list[str] | None = None) -> None:
    """Runs a worker until the job service has no more work, and ends this process."""
    parser = argparse.ArgumentParser(
        prog="tfx-distribute-beam-worker",
        description="Runs a Beam worker. Job services start it: write its path as beam.environment_config.",
    )
    parser.add_argument("--id", required=True, help="the worker's name")
    parser.add_argument("--provision_endpoint", required=True, metavar="HOST:PORT", help="where its settings are")
    # Flink and Spark pass more addresses, which are among the settings, too.
    arguments, _ = parser.parse_known_args(argv)
    worker = arguments.id.strip("'")  # Prism 2.74 quotes it, as if for a shell
    with grpc.insecure_channel(arguments.provision_endpoint) as channel:
        settings = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel).GetProvisionInfo(
            beam_provision_api_pb2.GetProvisionInfoRequest(),
            metadata=[("worker_id", worker)],
            timeout=timeouts.BEAM_PROVISION_SECONDS,
        )
    os.environ.update(make_environment(worker, settings.info))
    # Beam closes its log. TensorFlow's own end takes a second, for which the runner
    # would wait.
    exit_functions.forget()
    exit_functions.end(worker_process.run())


def make_environment(worker: str, info: beam_provision_api_pb2.ProvisionInfo) -> dict[str, str]:
    """Returns the environment variables that Beam's worker reads."""

    def as_text(endpoint: endpoints_pb2.ApiServiceDescriptor) -> str:
        return str(text_format.MessageToString(endpoint))

    return {
        "WORKER_ID": worker,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "CONTROL_API_SERVICE_DESCRIPTOR": as_text(info.control_endpoint),
        "LOGGING_API_SERVICE_DESCRIPTOR": as_text(info.logging_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
