"""What one move of a slider costs the app: `python -m tests.trace` moves the window of StreamingLLM on Quality vs speed
to a value that is not stored yet, and counts what the app's process does until the page is drawn again.

The worker is replaced by one that answers by hand, so that its own work, which is another process's, does not count.
"""

import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from analysis.runs import RunStore

ROOT = Path(__file__).resolve().parents[1]
PROJECT = (str(ROOT / "app"), str(ROOT / "analysis"))
LOOKUPS = (RunStore.find.__code__, RunStore.list.__code__)
SLIDER, MOVED_TO = "quality.streaming_llm.window", 48
MOST_CALLS, MOST_CHANGES, MOST_FORMS = 1_500, 150, 2


@dataclass
class Trace:
    """Calls of the project's own functions, by "room/file.py:function", and how often a call entered another room;
    `lookups` in the store by what was asked, "find evaluate focus"."""

    calls: Counter[str] = field(default_factory=Counter)
    rooms: list[str] = field(default_factory=list)
    changes: int = 0
    entries: Counter[str] = field(default_factory=Counter)
    manifests: Counter[str] = field(default_factory=Counter)
    lookups: Counter[str] = field(default_factory=Counter)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        name = frame.f_code.co_filename
        if not name.startswith(PROJECT) or event not in ("call", "return"):
            return
        if event == "return":
            if self.rooms:
                self.rooms.pop()
            return
        place = Path(name).relative_to(ROOT)
        room = "/".join(place.parts[:2])
        if self.rooms and self.rooms[-1] != room:
            self.changes += 1
            self.entries[f"{self.rooms[-1]} -> {place}:{frame.f_code.co_name}"] += 1
        self.rooms.append(room)
        self.calls[f"{place}:{frame.f_code.co_name}"] += 1
        if frame.f_code.co_name == "read_run":
            self.manifests[str(frame.f_locals.get("folder"))] += 1
        if frame.f_code in LOOKUPS:
            request = frame.f_locals.get("request")
            verb = frame.f_locals["verb"] if request is None else request.verb
            methods = getattr(request, "methods", None) or ()
            names = [method["name"] for method in methods[:1]]
            self.lookups[" ".join([frame.f_code.co_name, str(verb), *names])] += 1

    def of(self, function: str) -> int:
        """How often a function of this name was called."""
        return sum(times for place, times in self.calls.items() if place.endswith(f":{function}"))


def traced(move: Any) -> Trace:
    """What `move()` does, in this thread and in those that it starts."""
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        move()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trace


def slider_move() -> Trace:
    """One move of the slider to a new value."""
    import streamlit as st

    from app import cached
    from tests.made import results
    from tests.made.in_process import opened, redrawn

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        st.cache_data.clear()
        st.cache_resource.clear()
        store = RunStore(Path(folder) / "state")
        client = results.FakeJobs(store)
        patched.setattr(cached, "store", lambda: store)
        patched.setattr(cached, "jobs", lambda: client)
        patched.setattr(results, "CONTEXT", 2048)
        page = opened("methods", text=cached.sample("story"), quality_read=1024)
        for value in (96, MOVED_TO):  # the first move is not counted: it imports what a page imports once
            page.select_slider(key=SLIDER).set_value(value)
            trace = traced(lambda: redrawn(page, SLIDER))
    return trace


def main() -> int:
    """Print the counts, and the functions that are called most; 1 where a limit is passed."""
    trace = slider_move()
    calls = trace.calls.total()
    print(f"{calls} calls (at most {MOST_CALLS}), {trace.changes} changes of room (at most {MOST_CHANGES})")
    print(
        f"{trace.of('canonical')} canonical forms, {sum(trace.manifests.values())} manifests read, each at most "
        f"{max(trace.manifests.values(), default=0)} times"
    )
    for place, times in [*trace.calls.most_common(20), *trace.entries.most_common(30)]:
        print(f"{times:6} {place}")
    return int(calls > MOST_CALLS or trace.changes > MOST_CHANGES or max(trace.manifests.values(), default=0) > 1)


if __name__ == "__main__":
    sys.exit(main())
