"""Receives messages over HTTP, like a chat service."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Webhook:
    """A running receiver.

    Attributes:
      port: Its port.
      messages: The JSON documents that it has received.
      status: Its answer to the next ones.
      host: Its address, by default loopback.
    """

    port: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    host: str = "127.0.0.1"

    @property
    def address(self) -> str:
        """Its address in the form of apprise, with a secret."""
        return f"json://someone:s3cret@{self.host}:{self.port}/hooks/t0ken?+X-Key=k3yk3y"


@contextlib.contextmanager
def receiving(host: str = "127.0.0.1") -> Iterator[Webhook]:
    """Receives messages within the block, at an address of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            webhook.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(webhook.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer((host, 0), Handler) as server:
        webhook = Webhook(server.server_port, host=host)
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        try:
            yield webhook
        finally:
            server.shutdown()
