"""The worker process: the one owner of models. `python -m analysis.jobs.worker --root STATE`, JSON lines on its input.

It ends with its input. Whatever a library prints goes to the log, never between the answers.
"""

import argparse
import contextlib
import errno
import faulthandler
import importlib
import io
import logging
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

from ..answer import Answer
from ..commands import named
from ..errors import AnalysisError, BadSetting, Cancelled, TooLarge
from ..limits import limits
from ..runs import Result, RunStore
from ..runs.brought import read_upload
from ..runs.keys import asked_now
from .client import STUDIES
from .inbox import Inbox, Task
from .table import JobTable
from .wire import Message, describe_error, encode

WRITES_PER_SECOND = 5
# Share of the work before which nothing is said of the time that is left.
EARLY = 0.1
BEAT = 5.0  # seconds between two heartbeats
# The app and whatever else a person does here come before long work.
NICE = 5
# The log is cut to its last quarter beyond this.
LOG_BYTES = 4_000_000
# How torch, Python's threads, C++, and libraries in C that did not look say that they were refused memory.
REFUSED = ("t allocate memory", "t start new thread", "bad_alloc", "NULL without setting an exception")
Send = Callable[[Message], None]
Studies = Mapping[str, Callable[..., Any]]  # verb -> its function
Note = Callable[[str, float, str, float | None, dict[str, Any] | None], None]
log = logging.getLogger("focuscope.worker")


class Worker:
    """Executes tasks one after the other on one thread. `progress` is the border of a job's chunks: there its
    state is written, a wish to cancel is granted and waiting requests are served. `studies` names what it offers, as
    module:attribute; `note(job, fraction, stage, seconds left, curve)` writes a job's state."""

    def __init__(self, store: RunStore, inbox: Inbox, send: Send, studies: str, note: Note) -> None:
        self._store, self._inbox, self._send, self._write = store, inbox, send, note
        self._thread: threading.Thread | None = None
        name, attribute = studies.split(":")
        self._module = importlib.import_module(name)
        self._studies: Studies = getattr(self._module, attribute)
        place = self._module
        if name == STUDIES.split(":")[0]:
            # Torch too, before any task is timed.
            importlib.import_module("analysis.methods")
            place = importlib.import_module("analysis.studies.context")
        context: Callable[..., Any] = getattr(place, "Context", SimpleNamespace)
        self._context = context(store=store, progress=self.progress, show=self.show, at=self.at)
        # The job and, inside it, the request served at its border.
        self._stack: list[Task] = []

    def run(self) -> None:
        """Work until the input ends, in the thread that calls this."""
        self._thread = threading.current_thread()
        while (task := self._inbox.take()) is not None:
            self._execute(task)

    def progress(self, fraction: float, stage: str = "") -> None:
        """Reports how far the current task is (0 to 1) and what it does. Raises Cancelled when it shall stop."""
        if threading.current_thread() is not self._thread or not self._stack:
            return
        task = self._stack[-1]
        self._check(task)
        self._note(task, min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0, str(stage)[:200])
        if task.kind == "job":
            while (request := self._inbox.take_request()) is not None:
                began = time.monotonic()
                with _untouched():
                    self._execute(request)
                task.paused += time.monotonic() - began
            self._check(task)

    def at(self, fraction: float, stage: str = "") -> None:
        """As `progress`, from inside a pass of the model: nobody else is served meanwhile."""
        if threading.current_thread() is self._thread and self._stack:
            self._check(self._stack[-1])
            self._note(self._stack[-1], min(max(fraction, 0.0), 1.0), str(stage)[:200])

    def show(self, curve: dict[str, Any]) -> None:
        """What of the current task can be drawn already (column -> values); it goes with the next progress."""
        if threading.current_thread() is self._thread and self._stack:
            self._stack[-1].curve = curve

    def _check(self, task: Task) -> None:
        if self._inbox.closing:
            raise Cancelled("Focuscope was closed while this ran: start it again.")
        if task.cancelled:
            raise Cancelled("The work was cancelled; nothing half-made was kept.")

    def _note(self, task: Task, fraction: float, stage: str) -> None:
        now = task.seconds()
        if fraction > 0:
            task.first = task.first or (now, fraction)
        if task.written and now - task.written < 1 / WRITES_PER_SECOND:
            return
        task.written = now
        began, start = task.first or (now, fraction)
        seconds, done = now - began, fraction - start
        sure = done > 0 and done >= EARLY * (1 - start) and seconds > 0.5
        left = seconds * (1 - fraction) / done if sure else None
        if task.kind == "request":
            so_far = {} if task.curve is None else {"so_far": task.curve}
            self._send({"at": task.id, "fraction": fraction, "stage": stage, "left": left, **so_far})
            task.curve = None
            return
        try:
            self._write(task.id, fraction, stage, left, task.curve)
            task.curve = None
        except AnalysisError:
            log.exception("The progress of %s could not be written; it goes on.", task.id)

    def _execute(self, task: Task) -> None:
        self._stack.append(task)
        # The log, which is this process's standard error, opened for appending, stays bounded.
        with contextlib.suppress(OSError):
            if os.fstat(2).st_size > LOG_BYTES:
                tail = os.pread(2, LOG_BYTES // 4, os.fstat(2).st_size - LOG_BYTES // 4)
                os.ftruncate(2, 0)
                os.write(2, tail)
        try:
            self._check(task)
            self._send({"begun": task.id})
            answer = self._answer(task)
        except BaseException as error:
            if not isinstance(error, AnalysisError):
                log.exception("The study %s failed.", task.verb)
            answer = {"error": describe_error(_explain(error, task, self._store.root))}
            if _out_of_memory(error):
                answer["fatal"] = f"{task.verb} ran out of memory in it"
        finally:
            self._stack.pop()
            self._inbox.done(task)
        self._send({"id": task.id, **answer})
        if "fatal" in answer:
            # The app, which has heard it, ends this process.
            threading.Event().wait()

    def _answer(self, task: Task) -> Message:
        if task.kind == "request" and task.verb == "describe":
            describe = getattr(self._module, "describe", None)
            return {"value": {"methods": describe() if describe else {}}}
        if task.kind == "request" and task.verb == "read":
            return {"value": read_upload(self._store, str(task.args.get("upload")), str(task.args.get("name")))}
        if task.kind == "request" and task.verb == "warm":
            limits().check_model(name := str((task.args or {}).get("model", "demo")))
            warm = getattr(self._module, "warm", None)
            warm(self._context, name) if warm else self._context.model(name)
            return {"value": {}}
        study = self._studies.get(task.verb) if isinstance(task.verb, str) else None
        if study is None:
            raise BadSetting(f"There is no study {str(task.verb)[:40]!r}; there are: {', '.join(self._studies)}.")
        request = named(task.verb, task.args)
        limits().check(request)
        stored = self._store.find(request)
        if stored is not None:
            return {"run": stored.id, "cached": True}
        # Of the weights read; they may be replaced meanwhile.
        revision = asked_now(request).revision
        result = request.compute(study, context=self._context)
        if not isinstance(result, Result | Answer):
            raise TypeError(f"{task.verb} returned {type(result).__name__}, not a result")
        protocol = result.numbers.get("protocol", {})
        run = self._store.put(request, result, protocol, task.seconds(), revision)
        return {"run": run.id, "cached": False}


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether this process was refused memory or a thread, now or in an error before this one. What runs in it
    afterwards may fail anywhere. A full GPU is none: what did not fit there leaves nothing broken."""
    while error is not None:
        if isinstance(error, MemoryError) or isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        if isinstance(error, (RuntimeError, SystemError)) and any(words in str(error) for words in REFUSED):
            return True
        error = error.__cause__ or error.__context__
    return False


def _explain(error: BaseException, task: Task, root: Path) -> AnalysisError:
    reason = str(error).strip().split("\n")[0][:200]
    if type(error).__name__ == "OutOfMemoryError" or _out_of_memory(error):
        return TooLarge(
            f"The worker ran out of memory in {task.verb}: choose a shorter text, a smaller model or fewer items."
        )
    if isinstance(error, AnalysisError):
        return error
    return AnalysisError(
        f"The worker hit an internal error ({type(error).__name__}: {reason}). Nothing stored is lost; "
        f"the log is at {root / 'worker.log'}."
    )


@contextlib.contextmanager
def _untouched() -> Iterator[None]:
    """A request served inside a job must not disturb it: random states are put back, and the request does not
    inherit the job's gradient mode. Only libraries already loaded are looked after."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        if numpy is not None:
            stack.callback(numpy.random.set_state, numpy.random.get_state())
        if torch is not None:
            devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            stack.enter_context(torch.random.fork_rng(devices))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
        yield


def _take_streams() -> tuple[IO[bytes], Send]:
    """(input, send): the protocol moves to private descriptors; 0 reads nothing and 1 is the log from now on."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    printed = cast(io.TextIOWrapper, sys.stdout)
    # What is printed stands in the log before the worker dies.
    printed.reconfigure(line_buffering=True)

    def send(message: Message) -> None:
        # The app is gone: the inbox sees it too.
        with contextlib.suppress(OSError, ValueError):
            sink.write(encode(message))
            sink.flush()

    return source, send


def _beat(send: Send, ended: threading.Event) -> None:
    """Tell the app that this process is not stopped, from a thread of its own: a long chunk is no silence."""
    while not ended.is_set():
        send({"beat": True})
        ended.wait(BEAT)


def main() -> int:
    """Read the options, take over the standard streams, and work until the input ends."""
    parser = argparse.ArgumentParser(description="The worker of Focuscope: started by the app, not by hand.")
    parser.add_argument("--root", required=True)
    parser.add_argument("--examples")
    parser.add_argument("--studies", default=STUDIES, help="module:attribute of the dict verb -> function")
    parser.add_argument("--lease", type=int, help="descriptor held open as long as this process lives")
    options = parser.parse_args()
    source, send = _take_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    os.nice(NICE)
    if options.lease is not None:
        os.set_inheritable(options.lease, False)
    inbox, ended = Inbox(source), threading.Event()
    heart = threading.Thread(target=_beat, args=(send, ended), name="heart", daemon=True)
    heart.start()
    try:
        store = RunStore(options.root, options.examples)
        worker = Worker(store, inbox, send, options.studies, JobTable(store.root).progress)
    except Exception as error:
        log.exception("The worker could not start.")
        reason = str(error) if isinstance(error, AnalysisError) else f"{type(error).__name__}: {error}"
        send({"fatal": f"it could not start: {reason.rstrip('.')}"})
        ended.set()
        return 1
    send({"ready": True})
    worker.run()
    ended.set()
    # A thread that writes while Python ends would end it badly.
    heart.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
