"""Runs Beam workers: for the direct runner, and as a program for job services.

For the direct runner, they are forks of a process that has imported what they need. A
fresh interpreter needs seconds to import TensorFlow and TFX, and a component starts
workers for each of its Beam pipelines. A job service asks for one with `PROCESS`:

    tfx-distribute-beam-worker --id=ID --provision_endpoint=HOST:PORT

Beam has a program for this in its containers only (`boot`). It installs packages, which
this does not: the worker has those of this environment.
"""

import argparse
import atexit
import functools
import logging
import os
from collections.abc import Mapping
from concurrent.futures import Future

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from google.protobuf import json_format, text_format

from tfx_distribute.components import timeouts
from tfx_distribute.components.fork_client import ForkClient
from tfx_distribute.trainer_module import garbage_collection
from tfx_distribute.trainer_module.liveness import exit_functions
from tfx_distribute.trainer_module.user_code import module_copy


@functools.cache
def server() -> ForkClient:
    """Returns the fork server of this process; starts it when first called."""
    client = ForkClient(f"{__name__}:prepare", os.environ)
    atexit.register(client.close)
    return client


def start(environment: Mapping[str, str]) -> "Future[int]":
    """Starts a worker with the environment of this process, and more variables."""
    return server().fork(f"{__name__}:run", [], {**os.environ, **environment})


def prepare() -> None:
    """Imports what workers of TFX's and our components need, before they are forked."""
    import tensorflow_data_validation  # noqa: F401 (StatisticsGen)
    from apache_beam.runners.worker import sdk_worker_main  # noqa: F401
    from tfx.components.transform import executor  # noqa: F401

    import tfx_distribute.components.evaluator.executor  # noqa: F401


def run() -> int:
    """Runs a worker until its runner has no more work for it; returns an exit code.

    Its settings are environment variables, which Beam's worker reads.
    """
    module_copy.use()
    with garbage_collection.paused():
        import tensorflow  # noqa: F401 (TFX's components need it)
        from apache_beam.runners.worker import sdk_worker_main
    logging.getLogger().handlers.clear()  # Beam adds one, which passes messages on to the runner
    sdk_worker_main.main([])
    return 0


def make_environment(worker: str, info: beam_provision_api_pb2.ProvisionInfo) -> dict[str, str]:
    """Returns the environment variables that Beam's worker reads."""
    return {
        "WORKER_ID": worker,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.control_endpoint),
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.logging_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }


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
    exit_functions.end(run())
