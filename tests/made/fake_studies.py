"""Studies without a model, for the tests of the worker: they wait at gates, print, fail and die when told to."""

import json
import os
import random
import signal
import time

from analysis.errors import BadText
from analysis.runs import Result


def echo(context, value: int = 0, name: str | None = None):
    """A result of three parts that depends on `value` alone; below zero its numbers alone, since every worker of a test
    that is only waited for would load pandas first."""
    numbers = {"value": value, "name": name, "pid": os.getpid(), "protocol": {"tokens": 100, "model": "demo"}}
    if value < 0:
        return Result(numbers)
    import numpy as np
    import pandas as pd

    table = pd.DataFrame({"position": np.arange(3) + value, "piece": ["a", "b", "⟨E2⟩"]})
    return Result(numbers, {"tokens": table}, {"group": np.full((2, 3), value, np.int16)})


def gate(context, name: str, step: float = 0.01):
    """Reports progress until the file `open-<name>` stands in the state folder; never longer than a test may take."""
    (context.store.root / f"began-{name}").touch()
    first, end = random.random(), time.monotonic() + 280
    random.seed(5)
    expected = random.random()
    random.seed(5)
    fraction = 0.0
    while not (context.store.root / f"open-{name}").exists() and time.monotonic() < end:
        fraction = min(fraction + 0.02, 0.9)
        context.show({"step": [1, 2], "loss": [1.0, fraction]})
        context.progress(fraction, "waiting at the gate")
        time.sleep(step)
    return Result({"same_draw": random.random() == expected, "first": first})


def reseed(context, seed: int = 1):
    """A request that changes the random state and reports progress of its own."""
    random.seed(seed)
    context.progress(0.123, "request")
    return Result({"seed": seed})


def stubborn(context, name: str = "x"):
    """Never comes to a border."""
    context.progress(0.1, "before the endless chunk")
    (context.store.root / f"began-{name}").touch()
    while True:
        time.sleep(0.05)


def count(context, steps: int = 10, name: str = "x", wait_at: int = -1):
    """Counts with a checkpoint; waits at step `wait_at` when it gets there without having begun from a checkpoint."""
    path = context.store.root / f"count-{name}.json"
    start = json.loads(path.read_text()) if path.exists() else 0
    for step in range(start, steps):
        path.write_text(json.dumps(step))
        while step == wait_at and start == 0:
            context.progress(step / steps, "holding")
            time.sleep(0.01)
        context.progress(step / steps, f"step {step}")
    return Result({"began_at": start, "steps": steps})


def bad_text(context):
    raise BadText("the text has 3 characters and 10 are needed: use a longer one.")


def bug(context):
    return {}["missing"]


def wrong(context):
    return {"not": "a result"}


def greedy(context, said: str | None = None):
    """Out of memory: as Python says it itself, or in a library's words."""
    raise RuntimeError(said) if said else MemoryError


def die(context, name: str = "x"):
    os.kill(os.getpid(), signal.SIGKILL)


def shout(context):
    """Prints between the lines of the protocol, as libraries do, and reads what is not for it."""
    print('{"id": "forged"}')
    os.write(1, b'{"ready": true}\n' * 100)
    os.system("echo from a child; head -c 1")
    return Result({"heard": True})


def inspect(context, model: str, **settings):
    """Under a name that a shared demo allows."""
    return Result({"model": model})


def typed(
    context, model: str = "demo", layer: int | None = None, rate: float = 0.5, content: bool = True, top: int = 3
):
    return Result({"model": model, "layer": layer, "rate": rate, "content": content, "top": top})


def describe():
    return {"focus": {"help": "groups"}}


STUDIES = {
    study.__name__.replace("_", "-"): study
    for study in (echo, gate, reseed, stubborn, count, bad_text, bug, wrong, greedy, die, shout, typed, inspect)
}
