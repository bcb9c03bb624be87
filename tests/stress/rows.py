"""One line of the table: what was tried and how often it held; and hostile inputs, dealt to what must bear them."""

import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.places import CACHE
from tests.stress.scene import hold, readable

SECRET = "the secret of this machine"  # stands outside the store: nobody may read it
SLOW = 5.0  # seconds of work: an input that takes longer counts as one that broke something
OWN = ("state", "server.log", "home/.streamlit")  # of a folder: the store, what the app prints and is set up with


@dataclass(frozen=True)
class Row:
    """`holds`: whether the line as a whole is as it should be; without it, that is when every try held."""

    case: str
    tried: int
    held: int
    said: str = ""
    holds: bool | None = None

    def plain(self, hidden: str = "") -> dict:
        """As a row of the result; the folder `hidden` is not told."""
        holds = self.held == self.tried if self.holds is None else self.holds
        sentence = self.said.replace(hidden, "STATE") if hidden else self.said
        return {
            "case": self.case,
            "tried": self.tried,
            "held": self.held,
            "holds": holds,
            "said": " ".join(sentence.split()),
        }


def markdown(rows: Iterable[dict]) -> str:
    """The table as the README shows it."""
    lines = ["| case | tried | held | |", "|---|---|---|---|"]
    lines += [f"| {row['case']} | {row['tried']:,} | {row['held']:,} | {row['said']} |" for row in rows]
    return "\n".join(lines) + "\n"


def deal(kind: str, ways: Mapping[str, Callable], count: int, attempt: Callable[[Callable], object]) -> list[Row]:
    """`attempt(way)` for `count` inputs, to the ways in turn; an input held unless its attempt raised."""
    outcomes: dict[str, list[str]] = {}
    for number in range(count):
        name = list(ways)[number % len(ways)]
        outcome = ""
        try:
            attempt(ways[name])
        except Exception as error:  # whatever breaks is what is looked for
            outcome = f"{type(error).__name__}: {error}".split("\n")[0][:160]
        outcomes.setdefault(name, []).append(outcome)
    return [
        Row(f"{kind}: {name}", len(sentences), sentences.count(""), next(filter(None, sentences), ""))
        for name, sentences in outcomes.items()
    ]


def judged(judges: Mapping[str, Callable], count: int, seed: int, *inputs: object) -> list[Row]:
    """`count` inputs to what judges input, as `judge(dice, *given)`: an answer without the secret, or AnalysisError
    with one sentence, in time."""
    dice = random.Random(seed)

    def attempt(judge: Callable) -> None:
        began = now()
        try:
            hold(SECRET not in str(judge(dice, *inputs)), "what stands outside was read")
        except AnalysisError as error:
            readable(str(error))
        took = now() - began
        hold(took < SLOW, f"it took {took:.0f} s, and {SLOW:g} s are the limit")

    return deal("validator", judges, count, attempt)


def now() -> float:
    """Seconds that this process and those it waited for have worked: no input is slow because the machine is busy."""
    return sum(os.times()[:4])


def prepared(folder: Path) -> set[tuple[str, int]]:
    """Lay out `folder` around its store, so that a name such as `../../secret.txt`, or one without a folder, would hit
    what is watched; returns what lies outside the store."""
    for name in ("models/inside", "corpora/inside", "home"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "secret.txt").write_text(SECRET)
    return outside(folder)


def outside(folder: Path) -> set[tuple[str, int]]:
    """(name, bytes) of everything in `folder` outside the store, and in `models_cache`, its own store left out."""
    return {*_listed(folder, OWN), *_listed(CACHE, ("state",))}


def untouched(folder: Path, before: set[tuple[str, int]], part: str, count: int) -> Row:
    """The row that says so: `before` is what `prepared` returned, `count` how many inputs there were since."""
    touched = sorted(outside(folder) ^ before)
    sentence = f"touched: {touched[0][0]}"[:160] if touched else ""
    return Row(f"files outside the root after {part}", count, 0 if touched else count, sentence)


def _listed(folder: Path, excepted: tuple[str, ...]) -> set[tuple[str, int]]:
    ours = {folder / name for name in excepted}
    paths = [path for path in folder.rglob("*") if not ours & {path, *path.parents}]
    return {(str(path.relative_to(folder.parent)), path.lstat().st_size * path.is_file()) for path in paths}
