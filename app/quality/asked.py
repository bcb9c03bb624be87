"""A method as it is asked for, and as a page shows what was found of it; the names of settings."""

from dataclasses import dataclass, replace
from typing import Any

from analysis.claims import Comparison, number
from analysis.runs import Run
from app import cached
from app.ui import widgets
from app.ui.charts import GROUPS

# Times as many keys for the heads that share them as for one: above, sharing costs something.
SHARED = 1.005
# Within this share of dense the quality counts as kept.
NEAR = 0.05
SIGNS = ("●", "■", "◆", "▲", "✖", "⬟", "★", "✚", "⬢", "⧓")  # charts.SYMBOLS as characters
# Field -> (its name, a glossary term that explains it); any other is spelled as it is.
FIELDS = {
    "top": ("Groups per token", "membership (top-k)"),
    "window": ("Window, tokens", "sliding window"),
    "n_sink": ("Sinks, tokens", "attention sink"),
    "k": ("Keys per query", "KV reads (% of causal)"),
    "fraction": ("Share of keys kept", "KV reads (% of causal)"),
    "keep_window": ("Window kept too", "sliding window"),
    "membership": ("Membership", "literal and causal membership"),
}

# Of a timing, in words.
PHASES = {"prefill": "the prompt", "per_token": "later tokens"}


@dataclass(frozen=True)
class Asked:
    """A method as it is asked for: its description, its router's name where it has one, `changed` from `defaults`."""

    name: str
    about: dict
    router: str | None
    defaults: dict
    changed: dict
    # Among the methods that are offered: its colour and mark.
    place: int
    # Of CSA, where a budget was given to it.
    policy: dict | None = None

    @property
    def title(self) -> str:
        """Its name as it stands on the page."""
        return self.about["title"]

    @property
    def settings(self) -> dict:
        """The value of every field."""
        return self.defaults | self.changed

    @property
    def spec(self) -> dict:
        """The method in the words of `evaluate`."""
        spec = {"name": self.name, "settings": self.changed}
        spec |= {"router": self.router} if self.router else {}
        return spec | ({"policy": self.policy} if self.policy else {})

    @property
    def label(self) -> str:
        """Its title and what was changed."""
        keys = [f"{self.policy['total']:,} keys of all heads"] if self.policy else []
        return ", ".join([self.title, *map(str.lower, filter(None, [changes(self)])), *keys])

    def at(self, settings: dict, policy: dict | None = None) -> "Asked":
        """The method at settings that a run used, which a budget may have chosen."""
        changed = {name: value for name, value in settings.items() if value != self.defaults.get(name)}
        return replace(self, changed=changed, policy=policy)


@dataclass(frozen=True)
class Phase:
    """What a timing says of one phase against dense: the speed-up at `length` tokens with the range of its rounds, and
    the length from which it wins (None: at none that the model can read). Beyond `length` that is an estimate."""

    name: str
    length: int
    median: float
    low: float
    high: float
    wins_from: int | None = None

    @property
    def faster(self) -> bool:
        """Whether every round was faster than dense."""
        return self.low > 1

    @property
    def slower(self) -> bool:
        """Whether every round was slower than dense."""
        return self.high < 1

    def __str__(self) -> str:
        """The phase in a sentence: rounds on both sides of 1 show no difference."""
        rounds = f"{self.low:.2f} to {self.high:.2f}"
        if not (self.faster or self.slower):
            return f"{self.name}, no difference shown ({self.median:.2f} times dense speed, {rounds})"
        since = self.wins_from if self.faster and (self.wins_from or self.length) < self.length else None
        from_where = "" if since is None else f", faster from {since:,} tokens on"
        return f"{self.name} at {self.median:.2f} times dense speed ({rounds}){from_where}"


@dataclass(frozen=True)
class Timed:
    """A stored speed-up: of attention, or of the phase of the whole model that `best.name` says; and the `phases` of
    the whole model. `window`: the tokens at which the quality beside it was measured."""

    best: Phase
    phases: tuple[Phase, ...]
    window: int

    def of(self, phase: str) -> float | None:
        """The median of one phase, where it was timed."""
        return next((timed.median for timed in self.phases if timed.name == PHASES[phase]), None)


@dataclass(frozen=True)
class Shown:
    """A method with what was found: its run, its row, and its measured speed-up where one is stored."""

    asked: Asked
    run: Run | None
    row: dict[str, Any]
    speed: Timed | None = None

    @property
    def title(self) -> str:
        """The method's name as it stands on the page."""
        return self.asked.title

    @property
    def honest(self) -> bool:
        """Whether it could be run: no ceiling, which looks at every key, and nothing that saw the future."""
        return not self.row["ceiling"] and not self.row["reads_future"]

    @property
    def near(self) -> bool:
        """Whether it keeps the quality of dense attention."""
        return self.row["difference"] <= NEAR

    @property
    def bound(self) -> float:
        """How many times faster attention could be at most: causal pairs by pairs read."""
        return 1 / self.row["reads_causal"]

    @property
    def bound_kv(self) -> float:
        """The same where memory decides: causal pairs by those that heads with the same keys read together."""
        return 1 / self.row["reads_kv"]

    @property
    def shares(self) -> bool:
        """Whether heads that share keys read other ones than each other."""
        return self.row["sharing"] > SHARED


def counted(count: int, name: str) -> str:
    """1 window, 2 windows."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def look(place: int) -> tuple[str, str]:
    """Colour and sign of a method."""
    return GROUPS[place % len(GROUPS)], SIGNS[place % len(SIGNS)]


def spaced(name: str) -> str:
    """A name of the code as words."""
    return name.replace("_", " ")


def field_name(name: str) -> str:
    """The name of a setting."""
    return FIELDS[name][0] if name in FIELDS else spaced(name).capitalize()


def field_help(about: dict) -> str:
    """What a setting does, and the term behind it."""
    sentence = widgets.plain(f"{about['help'][:1].upper()}{about['help'][1:]}.")
    return f"{sentence}\n\n{cached.glossary(FIELDS[about['name']][1])}" if about["name"] in FIELDS else sentence


def changes(choice: Asked) -> str:
    """The settings that differ from the defaults, in words."""
    return ", ".join(f"{field_name(name).split(',')[0]} {spaced(str(value))}" for name, value in choice.changed.items())


def signed(share: float) -> str:
    """A change of perplexity."""
    return number(share, "change")


def change(row: dict) -> str:
    """The change against dense with its interval."""
    return Comparison.of(row, "difference", unit="change").bracketed
