"""Many readers of the real app while its worker trains in one thread: how long each waits, whether a page is lost, and
what of the memory comes back when they have left."""

import asyncio
import random
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field

from analysis.commands.runs import Stress
from analysis.errors import AnalysisError
from tests.stress.rows import Row
from tests.stress.server import Server
from tests.stress.session import Session

FIRST, WARM = 8.0, 2.0  # seconds: 95 of 100 first pages, and of 100 interactions, are complete within these
STUCK = 60.0  # seconds: a page that is not complete then never will be
BACK = 1.2  # of the app's memory before the readers came, at most, when they have left
JOB = "train_label=stress&train_steps=100000&train_tokens=512"  # a training that outlasts the measurement
PAGES = ("", "attention-heads", "token-groups", "long-range-pairs", "kv-budgets", "routing", "is-it-worth-it")
SIZES = ("sessions", "arrive", "seconds", "every", "after", "seed")
CONTROLS = ("layer_pick", "measure", "order_pick", "counted")  # what they ask for is computed once for all readers


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

    async def timed(self, act: Awaitable[float], name: str = "") -> None:
        """Seconds of what a reader does, the first page without a name, unless the page never comes."""
        try:
            wait = await asyncio.wait_for(act, STUCK)
        except TimeoutError:
            self.stuck += 1
        else:
            (self.done.setdefault(name, []) if name else self.opened).append(wait)


def measure(server: Server, scenario: Stress) -> tuple[list[Row], dict]:
    """Rows of the table, and the numbers behind them."""
    waits = Waits()
    numbers = asyncio.run(_measure(server, scenario, waits))
    beside = f"while a training of one thread runs in the worker (nice {numbers['nice']}, {numbers['job']})"
    who = f"{scenario.sessions} readers, one interaction each {scenario.every:g} s"
    failures, pages = len(numbers.pop("failures")), len(waits.opened) + len(waits.taken) + waits.stuck
    rows = [
        Row("pages under load that come to their end", pages, pages - waits.stuck, f"{who}, {beside}"),
        _row("first pages under load", waits.opened, FIRST),
        _row("interactions under load", waits.taken, WARM),
        Row("pages under load without a traceback", pages, pages - failures),
    ]
    if scenario.after:
        before, loaded, after = (numbers[f"{when}_bytes"] for when in ("before", "held", "after"))
        sentence = (
            f"the app holds {before / 1e6:.0f} MB before, {loaded / 1e6:.0f} MB with all readers, {after / 1e6:.0f} MB "
        )
        sentence += f"{scenario.after:g} s after they left (limit {BACK - 1:.0%} more than before)"
        rows.append(Row("memory after load", 1, int(after <= BACK * before), sentence))
    for name, times in (("first", waits.opened), ("warm", waits.taken)):
        numbers |= {f"{name}_median": at(times, 0.5), f"{name}_p95": at(times, 0.95), f"{name}_longest": at(times, 1)}
    longest = {action: max(seconds) for action, seconds in sorted(waits.done.items())}
    sizes = {name: getattr(scenario, name) for name in SIZES}
    return rows, sizes | numbers | {
        "pages": pages,
        "stuck": waits.stuck,
        "longest_by_action": longest,
    }


def _row(case: str, waits: list[float], limit: float) -> Row:
    median, p95, longest = (f"{at(waits, share):.2f} s" for share in (0.5, 0.95, 1))
    sentence = f"median {median}, p95 {p95} (limit {limit:g} s), longest {longest}"
    return Row(case, len(waits), sum(wait <= limit for wait in waits), sentence, at(waits, 0.95) <= limit)


def at(waits: Iterable[float], share: float) -> float:
    """The wait that this share of all is not above."""
    waits = sorted(waits)
    return waits[min(len(waits) - 1, int(share * len(waits)))] if waits else float("inf")


async def _measure(server: Server, load: Stress, waits: Waits) -> dict:
    async with Session(server.address) as first:
        await _store(first)
        await first.visit("train-a-router")
        await first.follow(JOB)
        await first.press("train_run")
        # A job starts the worker where the pages so far did without.
        for _ in range(100):
            if (worker := server.worker()) is not None:
                break
            await asyncio.sleep(0.1)
        if worker is None or "job=" not in first.query:
            raise AnalysisError("The training of the load test did not start: see the log of the app.")
        before, worked, dice = server.memory(), server.worked(), random.Random(load.seed)
        now = asyncio.get_running_loop().time
        begun, readers = now(), [Session(server.address) for _ in range(load.sessions)]
        end = begun + load.arrive + load.seconds
        reading = [
            _read(reader, begun + dice.uniform(0, load.arrive), random.Random(dice.random()), end, load.every, waits)
            for reader in readers
        ]
        *_, loaded = await asyncio.gather(*reading, _memory(server, end))
        worked = server.worked() - worked
        alive = server.worker()
        running = alive is not None and alive.pid == worker.pid and alive.cpu_percent(0.5) > 1
        nice = worker.nice()
        await first.press("job_cancel")
        if load.after:
            # The readers are gone, and nothing tells when their pages are freed.
            await asyncio.sleep(load.after)
        after = server.memory()
    return {
        "before_bytes": before,
        "held_bytes": loaded,
        "after_bytes": after,
        "worked_seconds": worked,
        "nice": nice,
        "job": "still running at the end" if running else "ended early",
        "failures": [text for reader in readers for text in reader.failures],
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


async def _memory(server: Server, moment: float) -> int:
    await asyncio.sleep(moment - asyncio.get_running_loop().time())
    return server.memory()


async def _read(reader: Session, come: float, dice: random.Random, until: float, pause: float, waits: Waits) -> None:
    """One reader: the first page, then one interaction after the other, the first after a random part of the pause; a
    late answer delays the next."""
    now = asyncio.get_running_loop().time
    await asyncio.sleep(come - now())
    async with reader:
        await waits.timed(reader.open())
        due = now() + dice.uniform(0, pause)
        while due < until:
            await asyncio.sleep(max(due - now(), 0))
            offered = {key: options for key, options in reader.options().items() if key in CONTROLS}
            if offered and dice.random() < 0.6:
                key = dice.choice(sorted(offered))
                await waits.timed(reader.choose(key, dice.choice(offered[key])), key)
            else:
                place = dice.choice([place for place in PAGES if place in reader.pages])
                await waits.timed(reader.visit(place), place or "start")
            due = max(due + pause, now())
        # The page stays open.
        await asyncio.sleep(max(until - now(), 0))
