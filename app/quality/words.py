"""The words of the quality tab: what was asked and shown, its names, the conclusion, the command line."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.claims import Comparison, Verdict, number
from analysis.commands import commandline
from analysis.corpus import sample_texts, text_hash
from analysis.runs import Run
from app import cached
from app.ui import widgets
from app.ui.charts import GROUPS

ALL = 0.995  # of the pairs read: nothing is saved
SHARED = 1.005  # times as many keys for the heads that share them as for one: above, sharing costs something
NEAR = 0.05  # within this share of dense the quality counts as kept
SIGNS = ("●", "■", "◆", "▲", "✖", "⬟", "★", "✚", "⬢", "⧓")  # charts.SYMBOLS as characters
SUBTITLES = {  # by what the methods save
    "reads": "Focus (tables 6 and 7, appendix D) beside StreamingLLM and Oracle top-k: quality on this text, live; "
    "speed against the fastest dense path here",
    "memory": "Rules that drop keys once a prompt is read, such as SnapKV and Ada-KV: quality of what follows on this "
    "text; the KV cache that is held",
    "prefill": "Methods that read some blocks of a prompt, such as XAttention and FlexPrefill: quality of what follows "
    "on this text; time of the prompt",
}
PRICES = {"refit": "calibration", "retrain": "training"}
FIELDS = {  # field -> (its name, a glossary term that explains it); any other is spelled as it is
    "top": ("Groups per token", "membership (top-k)"),
    "window": ("Window, tokens", "sliding window"),
    "n_sink": ("Sinks, tokens", "attention sink"),
    "k": ("Keys per query", "KV reads (% of causal)"),
    "fraction": ("Share of keys kept", "KV reads (% of causal)"),
    "keep_window": ("Window kept too", "sliding window"),
    "membership": ("Membership", "literal and causal membership"),
}


@dataclass(frozen=True)
class Asked:
    """A method as it is asked for: its description, its router's name where it has one, `changed` from `defaults`."""

    name: str
    about: dict
    router: str | None
    defaults: dict
    changed: dict
    place: int  # among the methods that are offered: its colour and mark
    policy: dict | None = None  # of CSA, where a budget was given to it

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
        return ", ".join([self.about["title"], *map(str.lower, filter(None, [changes(self)])), *keys])


@dataclass(frozen=True)
class Shown:
    """A method with what was found: its run, its row, and its measured speed-up of attention where one is stored."""

    asked: Asked
    run: Run
    row: dict
    speed: dict | None  # median, low, high, length, of, phases, window: see `quality.speed`

    @property
    def title(self) -> str:
        """The method's name as it stands on the page."""
        return self.asked.about["title"]

    @property
    def honest(self) -> bool:
        """Whether it could be run: no ceiling, which looks at every key, and nothing that saw the future."""
        return not self.row["ceiling"] and not self.row["reads_future"]

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


def field(name: str) -> str:
    """The name of a setting."""
    return FIELDS[name][0] if name in FIELDS else spaced(name).capitalize()


def field_help(about: dict) -> str:
    """What a setting does, and the term behind it."""
    sentence = widgets.plain(f"{about['help'][:1].upper()}{about['help'][1:]}.")
    return f"{sentence}\n\n{cached.glossary(FIELDS[about['name']][1])}" if about["name"] in FIELDS else sentence


def changes(choice: Asked) -> str:
    """The settings that differ from the defaults, in words."""
    return ", ".join(f"{field(name).split(',')[0]} {spaced(str(value))}" for name, value in choice.changed.items())


def signed(share: float) -> str:
    """A change of perplexity."""
    return number(share, "change")


def change(row: dict) -> str:
    """The change against dense with its interval."""
    return Comparison.of(row, "difference", unit="change").bracketed


def conclusion(results: Sequence[Shown], dense: dict, where: str) -> list[str]:
    """What these numbers say about this text and no other: the cheapest method that keeps the quality, the rest beside
    it, and who beats whom beyond the intervals."""
    able = [result for result in results if result.honest]
    near = [result for result in able if result.row["difference"] <= NEAR]
    sentences = []
    if near and min(result.row["reads_causal"] for result in near) > ALL:
        best = near[0]
        sentences.append(f"On {where}, {best.title} reads everything that dense does, so it saves nothing here.")
    elif near:
        best = min(near, key=lambda result: result.row["reads_causal"])
        sentences.append(
            f"On {where}, {best.title} stays within {NEAR:.0%} of dense while it reads {best.row['reads_causal']:.0%} "
            f"of what dense reads: perplexity {change(best.row)}{_unclear(best.row)}. {_speed(best)}"
        )
    elif able:
        best = min(able, key=lambda result: result.row["difference"])
        sentences.append(
            f"On {where}, no chosen method stays within {NEAR:.0%} of dense: the nearest, {best.title}, reads "
            f"{best.row['reads_causal']:.0%} of what dense reads at perplexity {change(best.row)}. {_speed(best)}"
        )
    else:
        best = None
        sentences.append(f"On {where}, dense attention has perplexity {dense['perplexity']:.1f}.")
    rest_of_results = [_beside(result) for result in results if result is not best]
    beaten = [
        f"{_fitted(a)} beats {_fitted(b)} here: it reads no more and loses less, beyond both intervals."
        for a in able
        for b in able
        if _beats(a.row, b.row)
    ]
    further = " ".join([*(["; ".join(rest_of_results) + "."] if rest_of_results else []), *beaten])
    return sentences + ([further] if further else [])


def _unclear(row: dict) -> str:
    """What is said behind a change that could be chance."""
    against_dense = Comparison.of(row, "difference", unit="change")
    if against_dense.verdict is Verdict.SAME:
        return ": no difference"
    significant = against_dense.verdict is not Verdict.NOT_SIGNIFICANT
    return "" if significant else f", not significant; {against_dense.detectable}"


def _speed(result: Shown) -> str:
    sentence = f"Attention could be at most {result.bound:.1f} times as fast; "
    if result.speed is None:
        return sentence + ("it is not timed here yet." if result.asked.about["kernels"] else "it has no kernel here.")
    rounds = f"({result.speed['low']:.2f} to {result.speed['high']:.2f} over the rounds)"
    of = "" if result.speed["of"] == "attention" else f", {result.speed['of']}"
    unsure = "no difference shown, " if result.speed["low"] <= 1 <= result.speed["high"] else ""
    length = f"at {result.speed['length']:,} tokens"
    return f"{sentence}measured here: {unsure}{result.speed['median']:.2f} times {rounds}{of}, {length}."


def _beside(result: Shown) -> str:
    row, kind = result.row, ""
    if row["ceiling"]:
        kind = ", a ceiling that scores every pair to choose,"
    elif not result.honest:
        kind = ", which saw the future,"
    verb = "keeps" if row["ceiling"] else "reads"
    return f"{result.title}{kind} {verb} {row['reads_causal']:.0%} at {signed(row['difference'])}"


def _fitted(result: Shown) -> str:
    """A method by name; of one that was trained or fitted, once and with one seed, what was made is named."""
    needs = result.asked.about.get("needs")
    fitting = " with this router" if needs == "router" else " as fitted here" if needs else ""
    return result.title + fitting


def _beats(a: dict, b: dict) -> bool:
    if None in (a["difference_high"], b["difference_low"]):
        return False
    return a["reads_causal"] <= b["reads_causal"] and a["difference_high"] < b["difference_low"]


def sharing(results: Sequence[Shown], heads: int) -> str:
    """What it costs that `heads` query heads share a key-value head; nothing where none do."""
    if heads == 1 or not results:
        return ""
    sentence = f"{heads} query heads share a key-value head, and a key is fetched when any of them reads it"
    alike = [result.title for result in results if not result.shares]
    factors = [f"{result.row['sharing']:.2f} times as many under {result.title}" for result in results if result.shares]
    if not factors:
        return f"{sentence}: here they all read the same keys, so sharing costs nothing."
    unshared = f"; as many under {', '.join(alike)}" if alike else ""
    return f"{sentence}. Together they read more keys than one of them: {', '.join(factors)}{unshared}."


def where(run: Run) -> str:
    """What was read, for a sentence."""
    count, size = run.protocol["tokens"], run.numbers["window"]
    windows = count // size
    return f"{counted(count, 'token')} of this text" + (f" in {windows:,} windows" if windows > 1 else "")


def unit(run: Run) -> str:
    """What the intervals stand on."""
    row, count = run.numbers["rows"][0], run.protocol["tokens"] // run.numbers["window"]
    sentence = (
        f"{counted(row['tokens'], 'predicted token')} in {counted(count, 'window')}. Intervals of the change hold "
        f"95%, from {row['difference_units']:,} {row['difference_unit']}: how even the change is inside this text, "
        "not what another text would give"
    )
    if row["difference_low"] is None:
        sentence += f". {row['difference_units']:,} are too few for one"
    return f"{sentence}."


def command(choices: Sequence[Asked], text: str, model: str, reading: dict) -> str:
    """The command line that gives the same numbers."""
    place = {text_hash(words): name for name, (_, words) in sample_texts().items()}.get(text, "TEXT")
    methods = [{"name": "dense"}, *(choice.spec for choice in choices)]
    return commandline("evaluate", {"text": place, "model": model, "methods": methods, **reading})
