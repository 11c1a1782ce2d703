"""Opens pages in Debian's Chromium, over its DevTools protocol."""

import base64
import contextlib
import itertools
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS = 60.0


class Page:
    """A page of the browser.

    Attributes:
      requests: Addresses that the page has asked for.
      errors: Errors that the browser has logged.
    """

    def __init__(self, address: str):
        self._socket = websocket.create_connection(address, timeout=SECONDS, suppress_origin=True)
        self._ids = itertools.count(1)
        self.requests: list[str] = []
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Calls a method of the protocol and returns its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        elif event["method"] == "Log.entryAdded":
            self.errors.append(event["params"]["entry"]["text"])

    def open(self, file: Path, width: int, dark: bool = False, scripts: bool = True) -> None:
        """Opens a file in a window of some width, in light or dark mode."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Page.navigate", url=file.as_uri())
        deadline = time.monotonic() + SECONDS
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.href") != file.as_uri():
            assert time.monotonic() < deadline, "the page does not load"
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """Saves the whole page as a picture."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")["data"]
        file.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Page]:
    """Starts the browser with a profile in a folder, and ends it.

    Skips the test on machines without the browser.
    """
    if PROGRAM is None:
        pytest.skip("there is no chromium; install it with: apt-get install chromium")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    log = folder / "browser.log"
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen([PROGRAM, *flags, "about:blank"], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + SECONDS
        while not (match := re.search(r"DevTools listening on ws://([^/]+)/", log.read_text(errors="replace"))):
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            assert process.poll() is None, log.read_text(errors="replace")
            time.sleep(0.05)
        with urllib.request.urlopen(f"http://{match[1]}/json/list", timeout=SECONDS) as answer:
            targets = json.load(answer)
        yield Page(next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page"))
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
