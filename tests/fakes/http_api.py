"""Serves a stand-in of an API over HTTP, on a free port of loopback."""

import contextlib
import http.server
import json
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
      method: `GET`, for example.
      path: Path of the address.
      query: Parameters of the address.
      headers: Its headers.
      body: Its body.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes


class Api(Protocol):
    """A stand-in.

    Attributes:
      reachable_at: Until this time, as of `time.monotonic`, connections are closed.
    """

    reachable_at: float

    def respond(self, request: Request) -> tuple[int, dict[str, Any] | str]:
        """Returns the status and the document, or the page, that answers a request.

        Raises:
          ConnectionAbortedError: There is no answer.
        """


class Server(http.server.ThreadingHTTPServer):
    """Answers requests to a stand-in."""

    daemon_threads = False  # closing the server waits for them

    def __init__(self, api: Api):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return time.monotonic() >= self.api.reachable_at

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # an OSError means that the client has left
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request per connection, so that no thread waits for another."""

    timeout = 30
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, url.path, dict(parse_qsl(url.query)), self.headers, body)
        try:
            code, answer = self.server.api.respond(request)
        except ConnectionAbortedError:
            return
        except Exception as error:
            traceback.print_exc()
            code, answer = 500, f"the stand-in failed: {error!r}"
        content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        with contextlib.suppress(OSError):
            self.send_response(code)
            self.send_header("Content-Type", "text/html" if isinstance(answer, str) else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    do_POST = do_DELETE = do_PATCH = do_PUT = do_GET  # noqa: N815
