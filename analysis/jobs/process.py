"""One worker process as the app sees it: calls go in, answers come out, and its death answers whatever was pending."""

import contextlib
import logging
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

import psutil

from .wire import Message, encode, messages, rebuild_error

# Seconds without a heartbeat after which a worker counts as stopped; it beats every 5.
SILENT = 20.0
PROJECT = Path(__file__).resolve().parents[2]
log = logging.getLogger("focuscope.jobs")


class WorkerLost(Exception):
    """The process ended before it answered. `began`: it had begun this call; `blamed`: this call ended it."""

    def __init__(self, reason: str, began: bool, blamed: bool) -> None:
        super().__init__(reason)
        self.reason, self.began, self.blamed = reason, began, blamed


class Call:
    """One question to the worker and, later, its answer. `kind` is "request" or "job"."""

    def __init__(self, kind: str, verb: str, args: dict[str, Any]) -> None:
        self.id = secrets.token_hex(6)
        self.kind, self.verb, self.args = kind, verb, args
        # Times of the monotonic clock.
        self.begun: float | None = None
        self.abandoned: float | None = None
        # done, what it does, seconds left, what can be drawn already
        self.told: tuple[float, str, float | None, dict[str, Any] | None] | None = None
        self._answered = threading.Event()
        self._answer: Message = {}
        self._error: Exception | None = None

    def wait(self, seconds: float | None = None) -> bool:
        """Whether the answer, or the worker's end, came within `seconds`."""
        return self._answered.wait(seconds)

    def answer(self) -> Message:
        """The worker's message, once `wait` was true. Raises the study's AnalysisError, or WorkerLost."""
        if self._error is not None:
            raise self._error
        return self._answer

    def settle(self, answer: Message | None = None, error: Exception | None = None) -> None:
        """The answer came, or why there is none; the first one counts."""
        if not self._answered.is_set():
            self._answer, self._error = answer or {}, error
            self._answered.set()


class Connection:
    """A worker as the app sees it, wherever it runs. Safe from any thread; no method waits for the worker. A child says
    how a message gets there (`_deliver`), hears what comes back (`_hear`) and tells of its end (`_end`)."""

    clock = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.pid: int | None = None
        self.ready = False
        self._lock = threading.Lock()
        # In the order they were sent.
        self._calls: dict[str, Call] = {}
        self._ended: str | None = None
        self._fatal: str | None = None
        self._blame: Call | None = None
        self._dying = False
        # When its heart was heard last; None of one that has none.
        self._beat: float | None = None
        self.given_up = False

    @property
    def silence(self) -> float:
        """Seconds without a heartbeat, once they are more than SILENT: it was stopped, or hangs. Else 0."""
        still = self.clock() - self._beat if self.alive and self._beat is not None else 0.0
        return still if still > SILENT else 0.0

    def give_up(self) -> None:
        """End it where it is silent; what it was asked may be put to another."""
        if still := self.silence:
            self._fatal, self.given_up = f"it had said nothing for {still:.0f} s", True
            self.kill()

    @property
    def alive(self) -> bool:
        """Whether it can still take a call."""
        return self._ended is None and not self._dying

    @property
    def running(self) -> list[Call]:
        """Calls the worker has begun, the innermost last."""
        with self._lock:
            return sorted((call for call in self._calls.values() if call.begun), key=_begun)

    @property
    def pending(self) -> int:
        """How many calls wait for an answer."""
        return len(self._calls)

    def _deliver(self, message: Message) -> None:
        raise NotImplementedError

    def kill(self, blame: Call | None = None) -> None:
        """Ends the worker now. `blame`: the call that made it necessary; others may be retried."""
        raise NotImplementedError

    def close(self, grace: float) -> None:
        """Ends the worker, within so many seconds."""
        raise NotImplementedError

    def memory(self) -> int:
        """Bytes that the worker holds, 0 when it cannot be told."""
        return 0

    def send(self, call: Call) -> None:
        """Put a call into the worker's input; a dead worker answers it at once with WorkerLost."""
        with self._lock:
            if self.alive:
                self._calls[call.id] = call
                self._deliver({"do": call.id, "kind": call.kind, "verb": call.verb, "args": call.args})
                return
        call.settle(error=WorkerLost(self._ended or self._fatal or "it was just killed", began=False, blamed=False))

    def cancel(self, call: Call) -> None:
        """Asks the worker to drop the call, or to leave it at its next progress border."""
        self._deliver({"cancel": call.id})

    def abandon(self, call: Call) -> None:
        """Nobody waits for this call any more: a late answer is ignored."""
        call.abandoned = time.monotonic()
        self.cancel(call)

    def _end(self, reason: str) -> None:
        """It is gone: whatever was pending is answered."""
        with self._lock:
            self._ended = self._fatal or reason
            lost = list(self._calls.values())
            self._calls.clear()
        begun = [call for call in lost if call.begun]
        culprit = self._blame or max(begun, key=_begun, default=None)
        for call in lost:
            call.settle(error=WorkerLost(str(self._ended), began=call.begun is not None, blamed=call is culprit))

    def _hear(self, message: Message) -> None:
        if "fatal" in message:
            self._fatal = str(message["fatal"])
            self.kill()
        if "beat" in message:
            self._beat = self.clock()
        elif "ready" in message:
            self.ready = True
        elif "begun" in message:
            if call := self._calls.get(message["begun"]):
                call.begun = time.monotonic()
        elif "at" in message:
            if call := self._calls.get(message["at"]):
                so_far = message.get("so_far") or (call.told[3] if call.told else None)
                call.told = message["fraction"], message["stage"], message["left"], so_far
        elif "id" in message:
            with self._lock:
                call = self._calls.pop(message["id"], None)
            if call is not None and "error" in message:
                call.settle(error=rebuild_error(message["error"]))
            elif call is not None:
                call.settle(answer=message)
        elif "fatal" not in message:
            log.warning("The worker sent a message without meaning: %s", sorted(message)[:5])


class WorkerProcess(Connection):
    """Starts Python with `arguments` at once and talks JSON lines with it.

    It finds the project. Its threads sleep while they wait: spinning ones make other work 2 to 5 times slower.
    """

    def __init__(self, arguments: list[str], log_path: Path, keep_open: Sequence[int]) -> None:
        super().__init__()
        path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
        with log_path.open("a+b") as errors:
            self._child = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONPATH": path},
                pass_fds=keep_open,
                # Ctrl-C ends the app, and the worker by the end of its input.
                start_new_session=True,
            )
        self._group = self.pid = self._child.pid
        self._outbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="worker-in", daemon=True).start()
        threading.Thread(target=self._read, name="worker-out", daemon=True).start()

    def _deliver(self, message: Message) -> None:
        self._outbox.put(message)

    def kill(self, blame: Call | None = None) -> None:
        with self._lock:
            self._blame, self._dying = self._blame or blame, True
        try:
            os.killpg(self._group, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def close(self, grace: float) -> None:
        """Ends the worker's input, and kills it when it has not gone after `grace` seconds."""
        self._outbox.put(None)
        try:
            self._child.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            self._child.wait(grace)

    def memory(self) -> int:
        try:
            return psutil.Process(self.pid).memory_info().rss
        except psutil.Error:
            return 0

    def _write(self) -> None:
        sink = cast("IO[bytes]", self._child.stdin)
        # A dead child: writing and closing fail.
        with contextlib.suppress(OSError), sink as stream:
            while (message := self._outbox.get()) is not None:
                stream.write(encode(message))
                stream.flush()

    def _read(self) -> None:
        with cast("IO[bytes]", self._child.stdout) as stream:
            for message in messages(stream):
                self._hear(message)
        code = self._child.wait()
        reason = f"it ended with status {code}"
        if code == -signal.SIGKILL:
            reason = "it was killed (signal 9), as a system does that runs out of memory"
        elif code < 0:
            reason = f"it was ended by signal {-code} ({signal.Signals(-code).name})"
        self._outbox.put(None)
        self._end(reason)


def _begun(call: Call) -> float:
    return call.begun or 0.0
