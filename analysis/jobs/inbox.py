"""The worker's ear: a thread that reads the app's messages while the main thread computes."""

import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import IO, Any

from .wire import messages

# Seconds the work under way has to leave by itself after the app is gone.
GRACE = 5.0


@dataclass
class Task:
    """One call in the worker. Times are of the monotonic clock; `paused` is what served requests took out of a job."""

    id: str
    kind: str
    verb: str
    args: dict[str, Any]
    cancelled: bool = False
    begun: float = 0.0
    paused: float = 0.0
    # (seconds, fraction) of the first progress; a resumed job begins above 0.
    first: tuple[float, float] | None = None
    written: float = 0.0
    # What it can draw already and has not written yet.
    curve: dict[str, Any] | None = None

    def seconds(self) -> float:
        """Seconds this task itself has run, requests served inside it left out."""
        return time.monotonic() - self.begun - self.paused


class Inbox:
    """Waiting tasks, requests before jobs. `closing` is true when the app has ended its side: then the process ends
    within GRACE seconds, whatever it does."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.closing = False
        self._changed = threading.Condition()
        self._requests: deque[Task] = deque()
        self._jobs: deque[Task] = deque()
        self._current: list[Task] = []
        threading.Thread(target=self._listen, args=(stream,), name="inbox", daemon=True).start()

    def take(self) -> Task | None:
        """The next task, waiting for one; None when the app is gone."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self.closing or self._requests or self._jobs))
            if self.closing:
                return None
            return self._begin((self._requests or self._jobs).popleft())

    def take_request(self) -> Task | None:
        """The next waiting request, or None at once."""
        with self._changed:
            return self._begin(self._requests.popleft()) if self._requests and not self.closing else None

    def done(self, task: Task) -> None:
        """The task has ended; a wish to cancel it no longer matters."""
        with self._changed:
            self._current.remove(task)

    def _begin(self, task: Task) -> Task:
        task.begun = time.monotonic()
        self._current.append(task)
        return task

    def _listen(self, stream: IO[bytes]) -> None:
        for message in messages(stream):
            with self._changed:
                if "cancel" in message:
                    # It is handed out next all the same, and answers "cancelled" without beginning its work.
                    for task in (*self._current, *self._requests, *self._jobs):
                        if task.id == message["cancel"]:
                            task.cancelled = True
                elif "do" in message:
                    kind, verb = message.get("kind", ""), message.get("verb", "")
                    task = Task(message["do"], kind, verb, message.get("args", {}))
                    (self._jobs if task.kind == "job" else self._requests).append(task)
                self._changed.notify_all()
        with self._changed:
            self.closing = True
            self._changed.notify_all()
        time.sleep(GRACE)
        os._exit(3)
