"""Keeps one worker warm: starts it when first needed, and a new one when it has died."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import AnalysisError, Busy
from .process import Call, Connection, WorkerLost
from .wire import Message

# Seconds between asking and killing.
GRACE = 5.0
# Seconds a call may run on after nobody waits for it: a large model may just be loading.
HUNG = 1800.0
# Seconds between two looks at how far a request is.
LOOK = 0.5
# Interactive calls under way at once.
MAX_PENDING = 200

Tell = Callable[[float, str, float | None, dict[str, Any] | None], None]


def _answered(call: Call, process: Connection, deadline: float, tell: Tell | None) -> bool:
    """Whether the answer came in time; whoever waits is told how far it is."""
    while tell is not None and not call.wait(min(LOOK, max(deadline - time.monotonic(), 0))):
        if time.monotonic() >= deadline:
            return False
        try:
            done, stage, left, curve = call.told or (0.0, "", None, None)
            if still := process.silence:
                tell(done, f"{still:.0f} s without a word of the worker; restart it in the model's box", None, curve)
            elif call.told is not None:
                tell(done, stage, left, curve)
        except BaseException:
            process.abandon(call)
            raise
    return call.wait(max(deadline - time.monotonic(), 0))


class Keeper:
    """Owns at most one live worker, which `start` makes; `log_path` is named where one was lost."""

    def __init__(self, start: Callable[[], Connection], log_path: Path | str) -> None:
        self.log_path, self._start = log_path, start
        self._lock = threading.Lock()
        # Dead or alive; None before the first was needed.
        self.process: Connection | None = None
        self._closed = False
        self._places = threading.BoundedSemaphore(MAX_PENDING)

    def live(self) -> Connection:
        """A process that lives, started now if need be; returns without waiting until it is ready."""
        with self._lock:
            if self._closed:
                raise AnalysisError("Focuscope was closed: start it again.")
            if self.process is not None and self.process.alive:
                for call in self.process.running:
                    if call.abandoned is not None and time.monotonic() - call.abandoned > HUNG:
                        self.process.kill(blame=call)
            if self.process is None or not self.process.alive:
                try:
                    self.process = self._start()
                except OSError as error:
                    raise AnalysisError(f"The worker could not be started ({error.strerror}): try again.") from error
            return self.process

    @property
    def load(self) -> int:
        """How many calls are under way, for choosing the idlest of several keepers."""
        return self.process.pending if self.process is not None and self.process.alive else 0

    def ask(self, verb: str, args: dict[str, Any], timeout: float, tell: Tell | None = None) -> Message:
        """The worker's answer to an interactive request. `tell(done, stage, seconds left, what can be drawn)` is called
        meanwhile, from this thread; what it raises ends the request. A call that a dying worker had not begun, or that
        died with another call's worker, is put to the next worker once. AnalysisError says everything else."""
        if not self._places.acquire(blocking=False):
            raise Busy(f"{MAX_PENDING} requests are under way, and that is the limit: try again in a moment.")
        try:
            return self._ask(verb, args, time.monotonic() + timeout, timeout, tell)
        finally:
            self._places.release()

    def _ask(self, verb: str, args: dict[str, Any], deadline: float, timeout: float, tell: Tell | None) -> Message:
        last = False
        while True:
            call, process = Call("request", verb, args), self.live()
            process.send(call)
            if not _answered(call, process, deadline, tell):
                process.abandon(call)
                if still := process.silence:
                    raise Busy(
                        f"The worker has said nothing for {still:.0f} s, so {verb} has no answer: restart it in the "
                        "model's box."
                    )
                doing = "is still at it" if call.begun else "is busy with other work"
                raise Busy(f"The worker did not answer {verb} within {timeout:.0f} s and {doing}: try again later.")
            try:
                return call.answer()
            except WorkerLost as lost:
                if lost.blamed and not process.given_up or last:
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
        """{"state": "cold" | "starting" | "ready" | "busy" | "silent", "pid": int | None, "memory": bytes}"""
        process = self.process
        if process is None or not process.alive:
            return {"state": "cold", "pid": None, "memory": 0}
        running = process.running
        starting = not process.ready or any(call.verb == "warm" for call in running)
        state = "silent" if process.silence else "starting" if starting else "busy" if running else "ready"
        return {"state": state, "pid": process.pid, "memory": process.memory()}

    def silent(self) -> dict[str, float]:
        """Id of each call that a silent worker has begun -> seconds since its last heartbeat."""
        process = self.process
        still = process.silence if process is not None else 0.0
        return {call.id: still for call in process.running} if process is not None and still else {}

    def restart(self) -> None:
        """End a silent worker: the next one begins its calls anew."""
        if self.process is not None:
            self.process.give_up()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            process = self.process
        if process is not None:
            process.close(GRACE)
