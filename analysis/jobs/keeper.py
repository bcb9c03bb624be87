"""Keeps one worker warm: starts it when first needed, and a new one when it has died."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError, Busy
from analysis.jobs.process import Call, Connection, WorkerLost, WorkerProcess
from analysis.jobs.wire import Message

GRACE = 5.0  # seconds between asking and killing
HUNG = 1800.0  # seconds a call may run on after nobody waits for it: a large model may just be loading
MAX_PENDING = 200  # interactive calls under way at once
PROJECT = Path(__file__).resolve().parents[2]


class Keeper:
    """Owns at most one live WorkerProcess. `command` is what follows the Python executable."""

    def __init__(self, command: list[str], log_path: Path | str, keep_open: Sequence[int] = ()) -> None:
        self.log_path = log_path
        self._command = [sys.executable, *command]
        self._keep_open = keep_open
        self._lock = threading.Lock()
        self._process: Connection | None = None
        self._closed = False
        self._pending = 0

    @property
    def process(self) -> Connection | None:
        """The process as it is, dead or alive, or None before the first was needed."""
        return self._process

    def live(self) -> Connection:
        """A process that lives, started now if need be; returns without waiting until it is ready."""
        with self._lock:
            if self._closed:
                raise AnalysisError("Focuscope was closed: start it again.")
            self._end_hung()
            if self._process is None or not self._process.alive:
                try:
                    self._process = self._start()
                except OSError as error:
                    raise AnalysisError(f"The worker could not be started ({error.strerror}): try again.") from error
            return self._process

    def _start(self) -> Connection:
        return WorkerProcess(self._command, Path(self.log_path), self._keep_open, _environment())

    @property
    def load(self) -> int:
        """How many calls are under way, for choosing the idlest of several keepers."""
        return self._process.pending if self._process is not None and self._process.alive else 0

    def ask(self, verb: str, args: dict[str, Any], timeout: float) -> Message:
        """The worker's answer to an interactive request. A call that a dying worker had not begun, or that died with
        another call's worker, is put to the next worker once. AnalysisError says everything else."""
        with self._lock:
            if self._pending >= MAX_PENDING:
                raise Busy(
                    f"{self._pending} requests are under way and {MAX_PENDING} is the limit: try again in a moment."
                )
            self._pending += 1
        try:
            return self._ask(verb, args, time.monotonic() + timeout, timeout)
        finally:
            with self._lock:
                self._pending -= 1

    def _ask(self, verb: str, args: dict[str, Any], deadline: float, timeout: float) -> Message:
        last = False
        while True:
            call, process = Call("request", verb, args), self.live()
            process.send(call)
            if not call.wait(max(deadline - time.monotonic(), 0)):
                process.abandon(call)
                doing = "is still at it" if call.begun else "is busy with other work"
                raise Busy(
                    f"The worker did not answer {verb} within {timeout:.0f} s and {doing}: try again in a while."
                )
            try:
                return call.answer()
            except WorkerLost as lost:
                if lost.blamed or last:
                    raise self.sentence(verb, lost) from None
                last = True

    def sentence(self, verb: str, lost: WorkerLost) -> AnalysisError:
        """A lost worker as the error to show."""
        when = f"while it ran {verb}" if lost.began else f"before it could run {verb}"
        return AnalysisError(
            f"The worker process stopped {when} ({lost.reason}). Nothing stored is lost and a new worker starts with "
            f"the next request; if it happens again choose a shorter text or a smaller model, or see {self.log_path}."
        )

    def state(self) -> dict[str, Any]:
        """{"state": "cold" | "starting" | "ready" | "busy", "pid": int | None, "memory": bytes}"""
        process = self._process
        if process is None or not process.alive:
            return {"state": "cold", "pid": None, "memory": 0}
        running = process.running
        starting = not process.ready or any(call.verb == "warm" for call in running)
        state = "starting" if starting else "busy" if running else "ready"
        return {"state": state, "pid": process.pid, "memory": process.memory()}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            process.close(GRACE)

    def _end_hung(self) -> None:
        if self._process is None or not self._process.alive:
            return
        for call in self._process.running:
            if call.abandoned is not None and time.monotonic() - call.abandoned > HUNG:
                self._process.kill(blame=call)


def _environment() -> dict[str, str]:
    """The worker finds the project, and its threads sleep while they wait: spinning ones make a machine that does
    other work too 2 to 5 times slower."""
    known = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(PROJECT), *([known] if known else [])])
    return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONPATH": path}
