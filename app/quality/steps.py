"""A method at one share of what it saves: what is asked of the worker, what is stored of it, and the best of a text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.claims import Comparison, signed
from analysis.commands.quality import Continuation, Evaluate
from analysis.declaration.command import Command
from analysis.errors import NotFitted
from analysis.runs import Run
from app import cached
from app.quality.asked import Asked, counted
from app.selection.decide import EQUAL_SHARES
from app.ui import asking, widgets
from app.ui.spelled import size as bytes_in_words

# Of the share that was asked for: a method that comes nowhere near it has no mark there.
MISSED = 0.1
# Methods that choose nothing: what the others have to beat.
NULLS = ("streaming_llm",)
# Stored searches among which the one for a text is looked for.
SEARCHES = 20


@dataclass(frozen=True)
class Subject:
    """What is read: the arguments that all requests share. `size`: tokens of a window or prompt; `tokens`: those that
    one request reads; `where` says it in words."""

    saves: str
    about: dict[str, Any]
    size: int
    tokens: int
    where: str

    @property
    def instead(self) -> bool:
        """Whether methods choose in place of the model's own indexer."""
        return bool(self.about.get("instead"))

    def request(self, choice: Asked, percent: int | None) -> Command:
        """A method at a share, or as it is set where it has no such setting."""
        share = None if choice.fixed or percent is None else percent / 100
        spec = (choice if share is None else choice.free()).spec
        command: Any = Evaluate if self.saves == "reads" else Continuation
        return cached.request(command, **self.about, methods=[spec], share=share, seed=0)

    def stored(self, choice: Asked, percent: int | None) -> "Step | None":
        """What is stored of it."""
        run = cached.store().find(self.request(choice, percent))
        return None if run is None else Step.of(self, choice, percent, run)


@dataclass(frozen=True)
class Step:
    """A method with what was found: `asked` at the settings that were used, the share that it really kept or read, and
    the change of perplexity. `percent`: the share that was asked for; None for a method that is fixed."""

    asked: Asked
    percent: int | None
    run: Run
    row: dict[str, Any]
    share: float
    change: Comparison

    @classmethod
    def of(cls, subject: Subject, choice: Asked, percent: int | None, run: Run) -> "Step":
        """The step that a run holds."""
        row = run.numbers["rows"][0 if subject.saves == "reads" else 1]
        change = Comparison.of(row, "difference", None if subject.saves == "reads" else "", unit="change")
        kept = {"reads": "reads_causal", "memory": "kv_share", "prefill": "blocks"}[subject.saves]
        policy = row.get("policy") if choice.about["needs"] == "policy" else None
        asked = choice.at(row["settings"], policy and {name: policy[name] for name in ("name", "total", "cap")})
        return cls(asked, None if choice.fixed else percent, run, row, row[kept], change)

    @property
    def reached(self) -> bool:
        """Whether it comes near to the share that was asked for."""
        return self.percent is None or abs(100 * self.share / self.percent - 1) <= MISSED

    @property
    def honest(self) -> bool:
        """Whether it could be run: no ceiling, which looks at every key, and nothing that saw the future."""
        return not self.row.get("ceiling") and not self.row.get("reads_future")

    @property
    def worst(self) -> str:
        """The place in the window where it loses most; of methods that drop keys, the bytes they held at most."""
        if "bins" in self.row:
            cell = self.row["bins"][self.row["worst_bin"]]
            return f"{signed(cell['difference'], '.0%')} at {cell['first'] + 1:,}–{cell['last']:,}"
        return bytes_in_words(self.row["kv_most_bytes"])

    @property
    def held(self) -> str:
        """Keys of a query, or bytes of the KV cache."""
        return f"{self.row['attended']:,.0f}" if "attended" in self.row else bytes_in_words(self.row["kv_bytes"])


@dataclass(frozen=True)
class Found:
    """What stands on the page of one method: its steps that are stored, and the shares that are not."""

    choice: Asked
    steps: tuple[Step, ...]
    missing: tuple[int, ...]

    @classmethod
    def of(cls, subject: Subject, choice: Asked) -> "Found":
        """What is stored of a method."""
        if choice.fixed:
            step = subject.stored(choice, None)
            return cls(choice, (step,) if step else (), ())
        stored = {percent: subject.stored(choice, percent) for percent in EQUAL_SHARES}
        steps = tuple(step for step in stored.values() if step is not None)
        return cls(choice, steps, tuple(percent for percent, step in stored.items() if step is None))

    def at(self, percent: int | None) -> Step | None:
        """Its step at a share, where it comes near to that; of a fixed method its only one."""
        return next((step for step in self.steps if step.reached and step.percent in (None, percent)), None)

    @property
    def least(self) -> str:
        """Why it has no mark at a share."""
        missed = [step.share for step in self.steps if not step.reached]
        return f"reaches {min(missed):.0%} at the least" if missed else "not computed"

    @property
    def reached(self) -> tuple[Step, ...]:
        """The steps that are drawn."""
        return tuple(step for step in self.steps if step.reached)


def found(subject: Subject, choices: Sequence[Asked], percent: int | None) -> tuple[list[Found], list[Asked], bool]:
    """What is stored of the methods, with the step at a share of each: computed now where it is missing, or where that
    takes long by one button. Then those that were never fitted to the model, and whether others wait; what else goes
    wrong with one stands in its place."""
    listed = [Found.of(subject, choice) for choice in choices]
    missing = [one.choice for one in listed if percent in one.missing or not (one.steps or one.missing)]
    requests = [subject.request(choice, percent) for choice in missing]
    _, waits = asking.several(requests, f"Reading with {counted(len(requests), 'method')}", "method", subject.tokens)
    unfitted = []
    if not waits:
        # Admitted together, though the first may take longer than was predicted.
        cached.drawing().wanted += requests
        for choice, request in zip(missing, requests, strict=True):
            with widgets.guarded():
                try:
                    asking.compute(request, f"Reading with {choice.title}", subject.tokens)
                except NotFitted:
                    unfitted.append(choice)
    listed = [Found.of(subject, one.choice) if one.choice in missing else one for one in listed]
    return [one for one in listed if one.choice not in unfitted], unfitted, waits


def best(subject: Subject, offered: Iterable[Asked], lose: float) -> tuple[Asked, int] | None:
    """The method and share to open with: what a stored search chose for this text, else of all that is stored the
    smallest share that loses less than `lose`, else the least loss. None where nothing is stored."""
    methods = {choice.name: choice for choice in offered if not (choice.fixed or choice.about["ceiling"])}
    about = subject.about
    wanted = {"model": about["model"], "texts": about.get("texts") or [about["text"]], "saves": subject.saves}
    for run in cached.store().list("search", SEARCHES):
        chosen = run.numbers.get("chosen")
        same = not subject.instead and wanted.items() <= run.request.items()
        if same and chosen and chosen["method"] in methods:
            return methods[chosen["method"]], nearest(chosen["budget"])
    listed = [Found.of(subject, choice) for name, choice in methods.items() if name not in NULLS]
    steps = [step for one in listed for step in one.reached if step.honest and step.percent is not None]
    passed = [step for step in steps if step.change.value <= lose]
    if not steps:
        return None
    top = min(passed or steps, key=lambda step: (step.percent if passed else 0, step.change.value))
    return methods[top.asked.name], top.percent or EQUAL_SHARES[-1]


def nearest(budget: float) -> int:
    """The share of the page, in per cent, next to what a search found."""
    return min(EQUAL_SHARES, key=lambda percent: abs(percent / 100 - budget))
