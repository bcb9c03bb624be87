"""Search for a setting: the smallest budget that loses less than a given share, over methods and settings."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...answer import Answer, Worded, doc, record
from ...claims import signed
from ...commands.quality import Search
from ...errors import BadText
from ...methods import METHODS
from ...metrics.paired import perplexity_change
from ..context import STREAMED, Context, protocol
from ..ready.candidates import Setting
from ..text.held_out import make_folder
from ..text.scoring import Difference, columns
from .arms import PART, Arm, ArmReader, arm, arms
from .following import KERNEL, stretches

# Stretches of text on which every setting is tried.
FIRST = 2
# Settings that are left for all of the stretches.
FEWEST = 3
# Tokens before the cut, or as many as fit.
PROMPT = 1024
SUMMARY = "label budget difference stretches left".split()
Read = Callable[[Sequence[tuple[Arm, Sequence[int]]], float, float], None]


@record
class Tried(Setting):
    """One setting that was tried."""

    budget: float = doc("share of what is saved that it keeps or reads")
    difference: float = doc("change of perplexity against dense attention on the stretches it read")
    stretches: int = doc("stretches that it read")
    left: bool = doc("it was left at the end of the halving")


@record
class Winner(Difference, Setting):
    """The winner or the nearest miss, measured on the half of the text that did not choose it."""

    budget: float = doc("share of what is saved that it keeps or reads")
    upper: float | None = doc("one-sided 95% limit of the loss")
    holds: bool | None = doc("that limit stays below the loss that was allowed; null with too few units")


@record
class Searched(Worded):
    """The smallest budget that loses less than a given share."""

    rows: list[Tried] = doc("one per setting")
    frontier: list[str] = doc("labels of the rows that no other beats in budget and loss, the cheapest first")
    chosen: Winner | None = doc("the winner; null where no setting loses little enough")
    nearest: Winner | None = doc("the setting that loses least, where none loses little enough")
    tied: list[str] = doc("labels of settings that read and lost exactly the same as it, or as the nearest")
    lose: float = doc("share of perplexity that may be lost")
    saves: str = doc("what is saved: reads, memory or prefill")
    summary: pd.DataFrame = doc("the rows in short", name="rows")


def search(request: Search, *, context: Context) -> Searched:
    """The smallest budget that raises perplexity by less than `lose`, over methods at seven settings each, by
    successive halving.

    Half of the stretches choose and half report: whole texts where there are several, else the halves of one. All
    settings read two stretches; the better half goes on to twice as many, until three are left or all of the choosing
    half is read. Better is a smaller budget among those that lose less than `lose`, and a smaller loss among the
    others. The winner alone, or the nearest where nothing passes, is judged on the reporting half: it holds where the
    one-sided 95% limit of its loss stays below `lose`.

    Methods that save memory or prefill are scored on the continuation, and the budget is the share of the KV cache that
    is held, or of the prompt's blocks that is read; those that save reads on all tokens, and it is that of the causal
    pairs in the softmax. A prompt has at least eight of a method's windows. It goes on where it was stopped. Errors:
    BadSetting, BadText.
    """
    reader = _reader(request, context)
    lm, texts = reader.lm, reader.texts
    choosing, reporting = split(texts.documents)
    if min(len(choosing), len(reporting)) < FIRST:
        raise BadText(
            f"The texts give {len(texts.windows)} stretches of {texts.about['window']:,} tokens and a search needs "
            f"{2 * FIRST}: give more text, or choose a shorter prompt."
        )
    tried, dense = arms(context, lm, request, texts, choosing[0]), arm(context, lm, {"name": "dense"})
    left = halving(tried, dense, choosing, request.lose, reader)
    able = [setting for setting in left if setting.change(dense) <= request.lose]
    best = min(able, key=lambda setting: setting.budget) if able else min(tried, key=lambda arm: arm.change(dense))
    rows = [
        Tried(
            **setting.candidate.setting,
            budget=setting.budget,
            difference=setting.change(dense),
            stretches=len(setting.losses),
            left=setting in left,
        )
        for setting in tried
    ]
    tied, judged = ties(best, tried), _judged(best, reader, reporting)
    count = len({setting.candidate.name for setting in tried})
    notes = [
        f"{len(tried)} settings of {count} methods were tried on {len(choosing)} stretches; {len(reporting)} others "
        "report."
    ]
    for title in dict.fromkeys(setting.candidate.method.title for setting in tried if setting.candidate.method.ceiling):
        notes.append(f"{title} looks at every key to choose: what it reads is a bound for other methods, not a saving.")
    kernel = STREAMED if request.saves == "reads" else KERNEL
    return Searched(
        rows=rows,
        frontier=frontier(rows),
        chosen=judged if able else None,
        nearest=None if able else judged,
        tied=tied,
        lose=request.lose,
        saves=request.saves,
        sentence=_sentence(judged, bool(able), tied, request.lose),
        notes=notes,
        summary=pd.DataFrame([vars(row) for row in rows])[SUMMARY],
        protocol=protocol("search", lm, texts.about["texts"][0], texts.windows.size, **texts.about, kernel=kernel),
    )


def _reader(request: Search, context: Context) -> ArmReader:
    lm = context.model(request.model)
    texts = stretches(context, lm, request, PROMPT, request.cuts)
    make_folder(context.state_dirs(lm)[0] / "work")
    return ArmReader(context, lm, request, texts)


@record
class SearchPart(Answer):
    """What another worker does of a search."""

    losses: list[list[float]] = doc("nats per token of every stretch")
    budgets: list[float] = doc("share that the method kept or read of every stretch")


def search_part(method: dict, places: list[int], *, context: Context, **search: Any) -> SearchPart:
    """One method on some stretches of a search, whose arguments are given."""
    reader = _reader(Search.from_arguments(search), context)
    measured = reader.measure(context, arm(context, reader.lm, method).candidate, places)
    tokens = len(places) * reader.texts.about["window"]
    return SearchPart(**measured, protocol=protocol(PART, reader.lm, reader.texts.about["texts"][0], tokens))


def split(documents: np.ndarray) -> tuple[list[int], list[int]]:
    """(stretches that choose, stretches that report): the first half of the documents and the rest; of one document its
    halves."""
    texts = np.unique(documents)
    first = np.arange(len(documents)) < len(documents) // 2
    if len(texts) > 1:
        first = np.isin(documents, texts[: len(texts) // 2])
    return np.flatnonzero(first).tolist(), np.flatnonzero(~first).tolist()


def halving(arms: list[Arm], dense: Arm, stretches: list[int], lose: float, read: Read) -> list[Arm]:
    """The arms that are left, the best first: all read the first stretches, and the better half twice as many."""
    left, done, goal = list(arms), 0, FIRST
    while True:
        goal = min(goal, len(stretches))
        share = 0.75 * (goal - done) / len(stretches)
        read([(arm, stretches[done:goal]) for arm in (dense, *left)], 0.1 + 0.75 * done / len(stretches), share)
        left.sort(key=lambda arm: rank(arm.change(dense), arm.budget, lose))
        if goal == len(stretches):
            return left
        left = left[: max(FEWEST, -(-len(left) // 2))]
        done, goal = goal, len(stretches) if len(left) <= FEWEST else 2 * goal


def rank(change: float, budget: float, lose: float) -> tuple[bool, float]:
    """Smaller is better: first those that lose less than `lose`, by their budget; then the others, by their loss."""
    return (False, budget) if change <= lose else (True, change)


def ties(best: Arm, tried: Sequence[Arm]) -> list[str]:
    """Labels of the other arms that read and lost exactly what `best` did, on the stretches that both have read."""
    tied = []
    for rival in tried:
        count = min(len(rival.losses), len(best.losses))
        equal = rival.losses[:count] == best.losses[:count] and rival.budgets[:count] == best.budgets[:count]
        if equal and rival is not best:
            tied.append(rival.candidate.label)
    return tied


def frontier(rows: list[Tried]) -> list[str]:
    """Labels of the rows beside which no other has a smaller budget and loses no more, the cheapest first."""
    best: list[Tried] = []
    for row in sorted(rows, key=lambda row: (row.budget, row.difference)):
        if not best or row.difference < best[-1].difference:
            best.append(row)
    return [row.label for row in best]


def _judged(best: Arm, reader: ArmReader, places: list[int]) -> Winner:
    """The winner on the half that reports, beside a dense pass of its own."""
    winner, dense = Arm(best.candidate, best.spec), arm(reader.context, reader.lm, {"name": "dense"})
    reader([(dense, places), (winner, places)], 0.85, 0.15)
    change = perplexity_change(np.array(winner.losses), np.array(dense.losses), reader.texts.units(places))
    return Winner(
        **winner.candidate.setting,
        **columns(Difference, change),
        budget=winner.budget,
        upper=change.upper,
        holds=None if change.upper is None else change.upper <= reader.request.lose,
    )


def _sentence(judged: Winner, passed: bool, tied: list[str], lose: float) -> str:
    """What was found on text that did not choose it; ties are named."""
    title, limit = METHODS[judged.method].title, f"(limit {lose:.0%})"
    if tied:
        title = f"a tie of {' and '.join([judged.label, *tied])}"
    setting, change = f"{title} at {judged.budget:.0%}", f"{signed(judged.difference, '.1%')} on unseen text"
    if not passed:
        return f"Nothing passed. Nearest: {setting}, {change} {limit}."
    verdict = {True: "Passed", False: "Not sure", None: "Too little text to judge"}[judged.holds]
    upper = "" if judged.upper is None else f", at most {signed(judged.upper, '.1%')}"
    return f"{verdict}: {setting}, {change}{upper} {limit}."
