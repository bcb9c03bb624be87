"""Many readers of the real app while its worker trains in one thread: how long each waits, whether a page is lost, and
what of the memory comes back when they have left."""

import asyncio
import random
from dataclasses import dataclass, field

import psutil

from analysis.errors import AnalysisError
from tests.stress.rows import Row
from tests.stress.server import Server
from tests.stress.session import Session

FIRST, WARM = 8.0, 2.0  # seconds: 95 of 100 first pages, and of 100 interactions, are complete within these
STUCK = 60.0  # seconds: a page that is not complete then never will be
BACK = 1.2  # of the app's memory before the readers came, at most, when they have left
JOB = "train_label=stress&train_steps=100000&train_tokens=512"  # a training that outlasts the measurement
PAGES = ("", "attention-heads", "token-groups", "long-range-pairs", "kv-budgets", "routing", "is-it-worth-it")
CONTROLS = ("layer_pick", "measure", "order_pick", "counted")  # what they ask for is computed once for all readers


@dataclass(frozen=True)
class Scenario:
    """`sessions` readers that come within `arrive` seconds, each by itself; then `seconds` with one interaction each
    `every` seconds: another page, or another value of a control, on the bundled text, whose results are stored. They
    leave, and `after` seconds later the memory is read again (0: it is not)."""

    sessions: int
    arrive: float
    seconds: float
    every: float
    after: float
    seed: int = 0


@dataclass
class Waits:
    """Seconds of every first page and of every interaction, of these by what was done; how many were `stuck`."""

    opened: list[float] = field(default_factory=list)
    done: dict[str, list[float]] = field(default_factory=dict)
    stuck: int = 0

    @property
    def taken(self) -> list[float]:
        """Of every interaction."""
        return [wait for waits in self.done.values() for wait in waits]

    async def timed(self, act, what: str = "") -> None:
        """Seconds of what a reader does, the first page without a name, unless the page never comes."""
        try:
            wait = await asyncio.wait_for(act, STUCK)
        except TimeoutError:
            self.stuck += 1
        else:
            (self.done.setdefault(what, []) if what else self.opened).append(wait)


def measure(server: Server, scenario: Scenario) -> tuple[list[Row], dict]:
    """Rows of the table, and the numbers behind them."""
    waits = Waits()
    numbers = asyncio.run(_measure(server, scenario, waits))
    beside = f"while a training of one thread runs in the worker (nice {numbers['nice']}, {numbers['job']})"
    who = f"{scenario.sessions} readers, one interaction each {scenario.every:g} s"
    shown, all_ = len(numbers.pop("failures")), len(waits.opened) + len(waits.taken) + waits.stuck
    rows = [
        Row("pages under load that come to their end", all_, all_ - waits.stuck, f"{who}, {beside}"),
        _row("first pages under load", waits.opened, FIRST),
        _row("interactions under load", waits.taken, WARM),
        Row("pages under load without a traceback", all_, all_ - shown),
    ]
    if scenario.after:
        said = (
            f"the app holds {numbers['before_bytes'] / 1e6:.0f} MB before, {numbers['held_bytes'] / 1e6:.0f} MB with "
        )
        said += f"all readers, {numbers['after_bytes'] / 1e6:.0f} MB {scenario.after:g} s after they left"
        back = numbers["after_bytes"] <= BACK * numbers["before_bytes"]
        rows.append(Row("memory after load", 1, int(back), f"{said} (limit {BACK - 1:.0%} more than before)"))
    for name, taken in (("first", waits.opened), ("warm", waits.taken)):
        numbers |= {
            f"{name}_{word}": at(taken, share) for word, share in (("median", 0.5), ("p95", 0.95), ("longest", 1))
        }
    longest = {what: max(taken) for what, taken in sorted(waits.done.items())}
    return rows, vars(scenario) | numbers | {"pages": all_, "stuck": waits.stuck, "longest_by_action": longest}


def _row(case: str, waits: list[float], limit: float) -> Row:
    said = (
        f"median {at(waits, 0.5):.2f} s, p95 {at(waits, 0.95):.2f} s (limit {limit:g} s), longest {at(waits, 1):.2f} s"
    )
    return Row(case, len(waits), sum(wait <= limit for wait in waits), said, at(waits, 0.95) <= limit)


def at(waits: list[float], share: float) -> float:
    """The wait that this share of all is not above."""
    return sorted(waits)[min(len(waits) - 1, int(share * len(waits)))] if waits else float("inf")


async def _measure(server: Server, asked: Scenario, waits: Waits) -> dict:
    async with Session(server.address) as first:
        await _store(first)
        await first.visit("train-a-router")
        await first.follow(JOB)
        await first.press("train_run")
        worker = await _started(server)
        if worker is None or "job=" not in first.query:
            raise AnalysisError("The training of the load test did not start: see the log of the app.")
        before, worked, dice = server.memory(), server.worked(), random.Random(asked.seed)
        now = asyncio.get_running_loop().time
        begun, readers = now(), [Session(server.address) for _ in range(asked.sessions)]
        until = begun + asked.arrive + asked.seconds
        places = [(begun + dice.uniform(0, asked.arrive), random.Random(dice.random())) for _ in readers]
        held = asyncio.create_task(_at(until, server.memory))
        pairs = zip(readers, places, strict=True)
        await asyncio.gather(*(_read(reader, *place, until, asked.every, waits) for reader, place in pairs))
        worked = server.worked() - worked
        failures = [text for reader in readers for text in reader.failures]
        alive = server.worker()
        job = "still running at the end" if alive and alive.pid == worker.pid and _busy(alive) else "ended early"
        nice = worker.nice()
        await first.press("job_cancel")
        if asked.after:
            await asyncio.sleep(asked.after)  # the readers are gone, and nothing tells when their pages are freed
        after = server.memory()
    return {
        "before_bytes": before,
        "held_bytes": await held,
        "after_bytes": after,
        "worked_seconds": worked,
        "nice": nice,
        "job": job,
        "failures": failures,
        "received_bytes": sum(reader.received for reader in readers),
    }


async def _store(first: Session) -> None:
    """Look at everything that readers will ask for, so that it is stored: every page in every layer, which goes along
    from page to page, with every other control."""
    await first.open()
    await first.visit("token-groups")
    for layer in first.options()["layer_pick"]:
        await first.visit("token-groups")
        await first.choose("layer_pick", layer)
        for place in PAGES:
            await first.visit(place)
            for key in sorted(set(CONTROLS) & set(first.options()) - {"layer_pick"}):
                for option in first.options()[key]:
                    await first.choose(key, option)


async def _started(server: Server) -> psutil.Process | None:
    """The worker: a job starts it where the pages so far did without."""
    for _ in range(100):
        if (worker := server.worker()) is not None:
            return worker
        await asyncio.sleep(0.1)
    return None


async def _at(moment: float, read):
    await asyncio.sleep(moment - asyncio.get_running_loop().time())
    return read()


async def _read(reader: Session, come: float, dice: random.Random, until: float, every: float, waits: Waits) -> None:
    """One reader: the first page, then one interaction after the other, the first after a random part of the pause; a
    late answer delays the next."""
    now = asyncio.get_running_loop().time
    await asyncio.sleep(come - now())
    async with reader:
        await waits.timed(reader.open())
        due = now() + dice.uniform(0, every)
        while due < until:
            await asyncio.sleep(max(due - now(), 0))
            offered = {key: options for key, options in reader.options().items() if key in CONTROLS}
            if offered and dice.random() < 0.6:
                key = dice.choice(sorted(offered))
                await waits.timed(reader.choose(key, dice.choice(offered[key])), key)
            else:
                place = dice.choice([one for one in PAGES if one in reader.pages])
                await waits.timed(reader.visit(place), place or "start")
            due = max(due + every, now())
        await asyncio.sleep(max(until - now(), 0))  # the page stays open


def _busy(worker: psutil.Process) -> bool:
    return worker.cpu_percent(0.5) > 1
