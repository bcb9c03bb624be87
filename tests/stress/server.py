"""The real app in a process of its own, on loopback, with a state folder of its own."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from analysis.errors import AnalysisError
from tests.stress.rows import Row
from tests.stress.scene import PROJECT

PATIENCE = 120  # seconds until the app must answer


@dataclass
class Server:
    """A running app: its address, its process, the folder of its log and its state."""

    address: str
    process: psutil.Process
    folder: Path

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.folder / "state"

    @property
    def log(self) -> str:
        """Everything the app has printed."""
        return (self.folder / "server.log").read_text(errors="replace")

    def quiet(self, part: str) -> Row:
        """Whether the app has printed no traceback."""
        errors = self.log.count("Traceback")
        return Row(f"the app's own log after {part}", 1, int(not errors), f"{errors} tracebacks" if errors else "")

    def memory(self) -> int:
        """Resident bytes of the app's own process, its worker left out."""
        return self.process.memory_info().rss

    def worked(self) -> float:
        """Seconds of processors that the app's own process has used."""
        return sum(self.process.cpu_times()[:2])

    def worker(self) -> psutil.Process | None:
        """The worker's process, or None while there is none."""
        for child in self.process.children():
            with contextlib.suppress(psutil.Error):
                if "analysis.jobs.worker" in child.cmdline():
                    return child
        return None


@contextlib.contextmanager
def served(folder: Path, entry: str = "app/serve/served.py", **environment: str) -> Iterator[Server]:
    """The app, once it answers, until the block ends: its store is `folder/state`, and it works in `folder/home`, so
    that a file without a folder lands there. AnalysisError when it does not start."""
    home, port = folder / "home", free_port()
    shutil.copytree(PROJECT / ".streamlit", home / ".streamlit", dirs_exist_ok=True)
    command = [sys.executable, "-m", "streamlit", "run", str(PROJECT / entry), f"--server.port={port}"]
    options = ["--server.address=127.0.0.1", "--server.headless=true", "--server.fileWatcherType=none"]
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "FOCUSCOPE_STATE": str(folder / "state"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
    # As run.py serves it.
    variables |= {"PYTHONMALLOC": "malloc"} | environment
    with (folder / "server.log").open("w") as log:
        child = subprocess.Popen([*command, *options], cwd=home, env=variables, stdout=log, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + PATIENCE
        while not _answers(f"http://127.0.0.1:{port}/_stcore/health"):
            if child.poll() is not None or time.monotonic() > until:
                printed = (folder / "server.log").read_text(errors="replace")[-300:].strip()
                raise AnalysisError(f"The app did not start: {printed or 'it said nothing'}")
            time.sleep(0.1)
        yield Server(f"127.0.0.1:{port}", psutil.Process(child.pid), folder)
    finally:
        workers = _children(child.pid)
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        # One that still writes keeps the folder from going.
        for worker in psutil.wait_procs(workers, timeout=10)[1]:
            worker.kill()


def _children(process: int) -> list[psutil.Process]:
    """What a process has started, and what that has; nothing of one that has ended."""
    try:
        return psutil.Process(process).children(recursive=True)
    except psutil.Error:
        return []


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=2):
        return True
    return False
