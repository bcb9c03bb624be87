"""Firefox without a window and without a network, driven over the socket that it opens for that (Marionette), so that
no driver has to be installed beside it."""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("firefox-esr", "firefox")
PATIENCE = 120  # seconds
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "ArrowRight": "\ue014"}
# Every request that leaves the machine ends at a port where nobody is.
PREFS = {
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "app.update.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.startup.max_resumed_crashes": -1,
}


def installed() -> str | None:
    """The Firefox of this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """The one tab of a Firefox that listens at `port`."""

    def __init__(self, port: int, folder: Path) -> None:
        self.count, self.folder = 0, folder
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
                break
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        self.stream = self.socket.makefile("rb")
        self._answer()
        self._ask("WebDriver:NewSession", capabilities={"alwaysMatch": {"acceptInsecureCerts": False}})
        self._ask("WebDriver:SetTimeouts", script=1000 * PATIENCE, pageLoad=1000 * PATIENCE)

    def _answer(self) -> Any:
        size = b""
        while (digit := self.stream.read(1)) != b":":
            assert digit, "Firefox has closed"
            size += digit
        return json.loads(self.stream.read(int(size)))

    def _ask(self, command: str, **parameters: Any) -> Any:
        self.count += 1
        words = json.dumps([0, self.count, command, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(words), words))
        _, number, error, result = self._answer()
        assert number == self.count and not error, error
        return result

    def open(self, path: Path, width: int, height: int, dark: bool = False) -> None:
        """Show a file so wide and high: in a frame, because a window of Firefox has a least width."""
        self._ask("Marionette:SetContext", value="chrome")
        self(f"Services.prefs.setIntPref('layout.css.prefers-color-scheme.content-override', {0 if dark else 1})")
        self._ask("Marionette:SetContext", value="content")
        frame = f'<iframe src="{path.as_uri()}" style="border: 0; width: {width}px; height: {height}px"></iframe>'
        around = self.folder / "frame.html"
        around.write_text(f'<!doctype html><body style="margin: 0">{frame}', encoding="utf-8")
        self._ask("WebDriver:SetWindowRect", width=max(width, 500) + 50, height=height + 200)
        self._ask("WebDriver:Navigate", url=around.as_uri())
        self._ask("WebDriver:SwitchToFrame", id=0)

    def __call__(self, words: str) -> Any:
        """The value of an expression in the page."""
        return self._ask("WebDriver:ExecuteScript", script=f"return {words}", args=[], sandbox="default")["value"]

    def until(self, words: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE
        while not self(words):
            assert time.monotonic() < until, words
            time.sleep(0.1)

    def press(self, key: str) -> None:
        """Press a key."""
        acts = [{"type": kind, "value": KEYS[key]} for kind in ("keyDown", "keyUp")]
        self._ask("WebDriver:PerformActions", actions=[{"type": "key", "id": "keys", "actions": acts}])

    def picture(self) -> bytes:
        """The frame as PNG."""
        return base64.b64decode(self._ask("WebDriver:TakeScreenshot", full=False)["value"])


@contextlib.contextmanager
def launched(profile: Path) -> Iterator[Tab]:
    """A Firefox with an empty profile in this folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    prefs = PREFS | {"marionette.port": port}
    lines = "".join(f'user_pref("{name}", {json.dumps(value)});\n' for name, value in prefs.items())
    (profile / "user.js").write_text(lines, encoding="utf-8")
    command = [
        installed() or "firefox",
        "--headless",
        "--marionette",
        "-remote-allow-system-access",
        "--profile",
        str(profile),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Tab(port, profile)
    finally:
        process.terminate()
        process.wait(30)
