"""Many readers at once on the real app, while its worker trains: how long each waits, and what each costs."""

import asyncio
import random
import statistics

import psutil

from analysis.errors import AnalysisError
from tests.stress.rows import Row
from tests.stress.server import Server
from tests.stress.session import Session

LIMIT = 2.0  # seconds: 95 of 100 interactions must be answered within this
JOB = "train_label=stress&train_steps=100000&train_tokens=512"  # a training that outlasts the measurement
PAGES = ("", "attention-heads", "token-groups", "long-range-pairs", "kv-budgets", "routing", "is-it-worth-it")
CONTROLS = ("layer_pick", "measure", "order_pick", "counted")  # what they ask for is computed once for all readers


def measure(server: Server, sessions: int, seconds: float, every: float, seed: int = 0) -> tuple[list[Row], dict]:
    """`sessions` readers for `seconds`, each with one interaction every `every` seconds: another page, or another value
    of a control, on the bundled text, whose results are stored. Rows of the table, and the numbers behind them."""
    numbers = asyncio.run(_measure(server, sessions, seconds, every, seed))
    fast, taken = sum(wait < LIMIT for wait in numbers["waits"]), len(numbers["waits"])
    beside = f"a training runs in the worker (nice {numbers['nice']}, {numbers['job']})"
    said = (
        f"{sessions} sessions, one interaction each {every:g} s, while {beside}: median {numbers['median']:.2f} s, "
        f"p95 {numbers['p95']:.2f} s (limit {LIMIT:g} s), longest {max(numbers['waits']):.2f} s; first page median "
        f"{numbers['open_median']:.2f} s; {numbers['session_bytes'] / 1e6:.1f} MB per session, app "
        f"{numbers['app_bytes'] / 1e6:.0f} MB"
    )
    shown = len(numbers.pop("failures"))
    waits = numbers.pop("waits")
    rows = [Row("interactions under load", taken, fast, said, numbers["p95"] < LIMIT)]
    rows.append(Row("pages under load without a traceback", len(waits) + sessions, len(waits) + sessions - shown))
    return rows, numbers


async def _started(server: Server) -> psutil.Process | None:
    """The worker: a job starts it where the pages so far did without."""
    for _ in range(100):
        if (worker := server.worker()) is not None:
            return worker
        await asyncio.sleep(0.1)
    return None


async def _measure(server: Server, sessions: int, seconds: float, every: float, seed: int) -> dict:
    async with Session(server.address) as first:
        await first.open()
        for place in PAGES:  # what all readers share is stored then, and the worker has loaded the model
            await first.visit(place)
            for key, options in first.options().items():
                for option in options if key in CONTROLS else ():
                    await first.choose(key, option)
        await first.visit("train-a-router")
        await first.follow(JOB)
        await first.press("train_run")
        worker = await _started(server)
        if worker is None or "job=" not in first.query:
            raise AnalysisError("The training of the load test did not start: see the log of the app.")
        idle = server.memory()
        random_ = random.Random(seed)
        readers = [Session(server.address) for _ in range(sessions)]
        try:
            opened = await asyncio.gather(*(_enter(reader, random_.uniform(0, every)) for reader in readers))
            until = asyncio.get_running_loop().time() + seconds
            seeds = [random_.random() for _ in readers]
            waits = await asyncio.gather(
                *(_read(reader, until, every, random.Random(own)) for reader, own in zip(readers, seeds, strict=True))
            )
            held = server.memory()
            failures = [text for reader in readers for text in reader.failures]
        finally:
            await asyncio.gather(*(reader.__aexit__() for reader in readers if reader.entered))
        alive = server.worker()
        job = "still running at the end" if alive and alive.pid == worker.pid and _busy(alive) else "ended early"
        await first.press("job_cancel")
    waits = sorted(wait for some in waits for wait in some)
    return {
        "sessions": sessions,
        "every": every,
        "seconds": seconds,
        "interactions": len(waits),
        "waits": waits,
        "median": statistics.median(waits),
        "p95": waits[min(len(waits) - 1, int(0.95 * len(waits)))],
        "open_median": statistics.median(opened),
        "open_longest": max(opened),
        "app_bytes": held,
        "idle_bytes": idle,
        "session_bytes": (held - idle) / sessions,
        "nice": worker.nice(),
        "job": job,
        "failures": failures,
        "received_bytes": sum(reader.received for reader in readers),
    }


async def _enter(reader: Session, after: float) -> float:
    await asyncio.sleep(after)
    await reader.__aenter__()
    return await reader.open()


async def _read(reader: Session, until: float, every: float, random_: random.Random) -> list[float]:
    """Interactions one after the other, the first after a random part of the pause; a late answer delays the next."""
    waits, now = [], asyncio.get_running_loop().time
    due = now() + random_.uniform(0, every)
    while due < until:
        await asyncio.sleep(max(due - now(), 0))
        offered = {key: options for key, options in reader.options().items() if key in CONTROLS}
        if offered and random_.random() < 0.6:
            key = random_.choice(sorted(offered))
            waits.append(await reader.choose(key, random_.choice(offered[key])))
        else:
            waits.append(await reader.visit(random_.choice(PAGES)))
        due = max(due + every, now())
    return waits


def _busy(worker: psutil.Process) -> bool:
    return worker.cpu_percent(0.5) > 1
