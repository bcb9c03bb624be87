"""Search for a setting: the smallest budget that loses less than a given share, over methods and settings."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from ...answer import Answer, Worded, doc, record
from ...claims import signed
from ...errors import BadSetting, BadText
from ...metrics.paired import perplexity_change
from ..context import STREAMED, Context, check_seed, protocol
from ..ready.candidates import FAMILIES, Setting
from ..text.calibration import document_windows, text_keys
from ..text.compared import Difference, columns
from ..text.held_out import check_range, make_folder
from .arms import PART, Arm, Reader, arm, arms
from .continuation import KERNEL

FIRST = 2  # stretches of text on which every setting is tried
FEWEST = 3  # settings that are left for all of the stretches
WINDOWS = 8  # of a method that keeps the last tokens of a prompt: a shorter prompt is mostly window
COLUMNS = "label budget difference stretches left".split()
OF = {  # what is saved -> what a method does, and of what its budget is a share
    "reads": ("reads", "of the causal pairs"),
    "memory": ("keeps", "of the KV cache"),
    "prefill": ("reads", "of the prompt's blocks"),
}
Read = Callable[[Sequence[tuple[Arm, Sequence[int]]], float, float], None]


@record
class Tried(Setting):
    """One setting that was tried."""

    budget: float = doc("share of what is saved that it keeps or reads")
    difference: float = doc("change of perplexity against dense attention on the stretches it read")
    stretches: int = doc("stretches that it read")
    left: bool = doc("it was left at the end of the halving")


@record
class Chosen(Difference, Setting):
    """The winner, measured on the half of the text that did not choose it."""

    budget: float = doc("share of what is saved that it keeps or reads")
    upper: float | None = doc("one-sided 95% limit of the loss")
    holds: bool | None = doc("that limit stays below the loss that was allowed; null with too few units")


@record
class Search(Worded):
    """The smallest budget that loses less than a given share."""

    rows: list[Tried] = doc("one per setting")
    frontier: list[str] = doc("labels of the rows that no other beats in budget and loss, the cheapest first")
    chosen: Chosen | None = doc("the winner; null where no setting loses little enough")
    tied: list[str] = doc("labels of settings that read and lost exactly the same as it, or as the nearest")
    lose: float = doc("share of perplexity that may be lost")
    saves: str = doc("what is saved: reads, memory or prefill")
    summary: pd.DataFrame = doc("the rows in short", name="rows")


def search(
    model: str = "demo",
    texts: list[str] | None = None,
    saves: str = "memory",
    methods: list[dict] | None = None,
    lose: float = 0.05,
    prefix: int | None = None,
    continuation: int = 128,
    cuts: int = 32,
    seed: int = 0,
    *,
    context: Context,
) -> Search:
    """The smallest budget that raises perplexity by less than `lose`, over methods that save `saves`, at seven settings
    each, by successive halving.

    Of the stretches of `texts` (hashes), a prompt of `prefix` tokens and the `continuation` after it, half choose and
    half report: whole texts where there are several, else the halves of one. All settings read two stretches; the
    better half goes on to twice as many, until three are left or all of the choosing half is read. Better is a smaller
    budget among those that lose less than `lose`, and a smaller loss among the others. The winner alone is judged on
    the reporting half: it holds where the one-sided 95% limit of its loss stays below `lose`.

    Of methods that save memory or prefill the continuation is scored, and the budget is the share of the KV cache that
    is held, or of the prompt's blocks that is read; of those that save reads all tokens of a stretch are scored, and
    the budget is the share of the causal pairs in the softmax. It goes on where it was stopped. A prompt has at least
    eight of a method's windows. Errors: BadSetting, BadText.
    """
    check_seed(seed)
    check_range("The number of stretches", cuts, 2 * FIRST, 256)
    if saves not in FAMILIES or not 0 < lose <= 1:
        raise BadSetting(
            f"{saves[:20]!r} and {lose:g}: what is saved is one of {', '.join(FAMILIES)}, the loss between 0 and 1."
        )
    read, documents = _reader(context, model, texts, saves, prefix, continuation, cuts)
    lm, windows = read.lm, read.windows
    choosing, reporting = split(documents)
    if min(len(choosing), len(reporting)) < FIRST:
        raise BadText(
            f"The texts give {len(windows)} stretches of {windows.shape[1]:,} tokens and a search needs {2 * FIRST}: "
            "give more text, or choose a shorter prompt."
        )
    tried, dense = arms(context, lm, saves, methods, windows[choosing[0]]), arm(context, lm, {"name": "dense"})
    if saves != "reads":
        check_prompt(read.prefix, tried)
    left = halving(tried, dense, choosing, lose, read)
    able = [setting for setting in left if setting.change(dense) <= lose]
    best = min(able, key=lambda setting: setting.budget) if able else None
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
    tied = ties(best or min(tried, key=lambda setting: setting.change(dense)), tried)
    chosen = None if best is None else _judged(best, read, reporting, documents, lose)
    return Search(
        rows=rows,
        frontier=frontier(rows),
        chosen=chosen,
        tied=tied,
        lose=lose,
        saves=saves,
        sentence=_sentence(chosen, rows, tied, lose, saves),
        notes=_notes(tried, len(choosing), len(reporting)),
        summary=pd.DataFrame([vars(row) for row in rows])[COLUMNS],
        protocol=protocol(
            "search",
            lm,
            (texts or [None])[0],
            int(windows.size),
            prefix=read.prefix,
            continuation=continuation,
            cuts=len(windows),
            texts=text_keys([context.text(key) for key in texts or []]),
            seed=seed,
            window=windows.shape[1],
            kernel=STREAMED if saves == "reads" else KERNEL,
        ),
    )


def _reader(
    context: Context, model: str, texts: list[str] | None, saves: str, prefix: int | None, continuation: int, cuts: int
) -> tuple[Reader, np.ndarray]:
    """The reader of the texts' stretches, and which text each stretch is of. Errors: BadSetting, BadText."""
    check_range("The length of the continuation", continuation, 2, 1 << 16)
    lm = context.model(model)
    longest = lm.max_positions - continuation
    prefix = min(1024, longest) if prefix is None else prefix
    check_range("The length of the prefix", prefix, 8, longest)
    named = [context.text(key) for key in texts or []]
    if not named:
        raise BadSetting("A search needs at least one text: name one.")
    size = prefix + continuation
    windows, documents = document_windows(lm, named, size, cuts * size, "text")
    folder = context.state_dirs(lm)[0] / "work"
    make_folder(folder)
    request = {"model": model, "texts": texts, "saves": saves, "prefix": prefix, "continuation": continuation}
    return Reader(context, lm, folder, windows, prefix, saves, request | {"cuts": cuts}), documents


@record
class SearchPart(Answer):
    """What another worker does of a search."""

    losses: list[list[float]] = doc("nats per token of every stretch")
    budgets: list[float] = doc("share that the method kept or read of every stretch")


def search_part(
    model: str,
    texts: list[str],
    saves: str,
    prefix: int,
    continuation: int,
    cuts: int,
    method: dict,
    stretches: list[int],
    *,
    context: Context,
) -> SearchPart:
    """One method on some stretches of a search."""
    read, _ = _reader(context, model, texts, saves, prefix, continuation, cuts)
    measured = read.measure(context, arm(context, read.lm, method).candidate, stretches, 0.0)
    about = protocol(PART, read.lm, texts[0], len(stretches) * read.windows.shape[1])
    return SearchPart(**measured, protocol=about)


def check_prompt(prefix: int, tried: Sequence[Arm]) -> None:
    """Refuse a prompt in which the window that a method always keeps leaves nothing to choose: rules that differ in
    what they choose would read alike. Errors: BadSetting."""
    window, title = max((arm.candidate.settings.get("window", 0), arm.candidate.method.title) for arm in tried)
    if prefix < WINDOWS * window:
        raise BadSetting(
            f"The prompts have {prefix:,} tokens and {title} always keeps {window:,} of them: give prompts of "
            f"{WINDOWS * window:,} or more tokens, or a smaller window."
        )


def ties(best: Arm, tried: Sequence[Arm]) -> list[str]:
    """Labels of the other arms that read and lost exactly what `best` did, on the stretches that both have read."""
    tied = []
    for rival in tried:
        count = min(len(rival.losses), len(best.losses))
        equal = rival.losses[:count] == best.losses[:count] and rival.budgets[:count] == best.budgets[:count]
        if equal and rival is not best:
            tied.append(rival.candidate.label)
    return tied


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


def frontier(rows: list[Tried]) -> list[str]:
    """Labels of the rows beside which no other has a smaller budget and loses no more, the cheapest first."""
    best: list[Tried] = []
    for row in sorted(rows, key=lambda row: (row.budget, row.difference)):
        if not best or row.difference < best[-1].difference:
            best.append(row)
    return [row.label for row in best]


def _judged(best: Arm, read: Reader, stretches: list[int], documents: np.ndarray, lose: float) -> Chosen:
    """The winner on the half that reports, beside a dense pass of its own."""
    winner, dense = Arm(best.candidate, best.spec), arm(read.context, read.lm, {"name": "dense"})
    read([(dense, stretches), (winner, stretches)], 0.85, 0.15)
    of_stretches = documents[stretches]
    units = of_stretches if len(set(of_stretches.tolist())) > 1 else None
    change = perplexity_change(np.array(winner.losses), np.array(dense.losses), units)
    return Chosen(
        **winner.candidate.setting,
        **columns(Difference, change),
        budget=winner.budget,
        upper=change.upper,
        holds=None if change.upper is None else change.upper <= lose,
    )


def _notes(tried: list[Arm], choosing: int, reporting: int) -> list[str]:
    ceilings = dict.fromkeys(arm.candidate.method.title for arm in tried if arm.candidate.method.ceiling)
    notes = [f"{choosing} stretches chose, {reporting} others report."]
    for title in ceilings:
        notes.append(f"{title} looks at every key to choose: what it reads is a bound for other methods, not a saving.")
    return notes


def _sentence(chosen: Chosen | None, rows: list[Tried], tied: list[str], lose: float, saves: str) -> str:
    does, of_what = OF[saves]
    if chosen is None:
        best = min(rows, key=lambda row: row.difference)
        return (
            f"No setting loses less than {lose:.0%}: the nearest, {_named(best.label, tied)}, {does} "
            f"{best.budget:.0%} {of_what} and changes perplexity by {signed(best.difference, '.1%')}."
        )
    verdict = {True: "holds", False: "does not hold", None: "cannot be judged on so few"}[chosen.holds]
    upper = "" if chosen.upper is None else f", at most {signed(chosen.upper, '.1%')} (one-sided 95%)"
    label = _named(chosen.label, tied)
    return (
        f"{label[0].upper()}{label[1:]} {does} {chosen.budget:.0%} {of_what}. On text that did not choose it, it "
        f"changes perplexity by {signed(chosen.difference, '.1%')}{upper}: “less than {lose:.0%}” {verdict} "
        f"({chosen.units} {chosen.unit})."
    )


def _named(label: str, tied: list[str]) -> str:
    """A setting by its label, with all that it ties with."""
    return f"a tie of {' and '.join([label, *tied])} (the same to the last digit)" if tied else label
