"""Sends requests to servers as another user.

Reads a line of JSON from standard input for each request, and writes one with the
answer:

    {"user": 65534, "what": "tcp", "arguments": [PORT]}

Each request runs in a fork. All imports come first, since another user may be unable to
read the modules.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from apache_beam.portability.api import beam_artifact_api_pb2, beam_artifact_api_pb2_grpc, beam_runner_api_pb2
from strangers import as_user, connect


def tcp(port: int) -> str:
    return connect(socket.AF_INET, "127.0.0.1", port)


def beam(address: str, path: str) -> str:
    """Requests a file from Beam's server; returns it, or the status of the refusal."""
    file = beam_runner_api_pb2.ArtifactFilePayload(path=path).SerializeToString()
    information = beam_runner_api_pb2.ArtifactInformation(type_urn="beam:artifact:type:file:v1", type_payload=file)
    with grpc.insecure_channel(address) as channel:
        stub = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
        request = beam_artifact_api_pb2.GetArtifactRequest(artifact=information)
        try:
            return b"".join(part.data for part in stub.GetArtifact(request, timeout=3)).decode()
        except grpc.RpcError as error:
            return error.code().name


def tensorflow(port: int, path: str) -> str:
    """Requests a file from a TensorFlow server, and returns it."""
    with tf.Graph().as_default():
        content = tf.io.read_file(path)
        config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=3_000)
        with tf.compat.v1.Session(f"grpc://127.0.0.1:{port}", config=config) as session:
            return session.run(content).decode()


def read(path: str) -> str:
    return Path(path).read_bytes()[:10].hex()


def main() -> None:
    "".encode("idna")
    print("ready", flush=True)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        function = {"tcp": tcp, "beam": beam, "tensorflow": tensorflow, "read": read}[request["what"]]
        print(json.dumps(as_user(request["user"], function, *request["arguments"], seconds=6)), flush=True)


if __name__ == "__main__":
    main()
