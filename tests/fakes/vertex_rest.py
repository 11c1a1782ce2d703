"""Serves the stand-in of Google Cloud over REST, on a free port of loopback.

The bearer token of a request is the e-mail address of the account that sends it.
"""

import contextlib
import http.server
import json
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from vertex_errors import ApiError

if TYPE_CHECKING:
    from vertex_api import VertexApi


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # closing the server waits for them

    def __init__(self, api: "VertexApi"):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return time.monotonic() >= self.api.reachable_at

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # an OSError means that the client has left
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request per connection, so that no thread keeps waiting."""

    timeout = 30
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            account = self.headers.get("Authorization", "").removeprefix("Bearer ")
            answer, code = self.server.api.answer(self.command, url.path, dict(parse_qsl(url.query)), body, account), 200
        except ConnectionAbortedError:
            return
        except ApiError as error:
            answer, code = error.document, error.code
        except Exception as error:
            self._send(500, ApiError(500, f"the fake failed: {error!r}").document)
            raise
        self._send(code, answer)

    do_POST = do_DELETE = do_PUT = do_GET  # noqa: N815

    def _send(self, code: int, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        with contextlib.suppress(OSError):
            self.send_response(code)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
