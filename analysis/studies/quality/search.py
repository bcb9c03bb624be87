"""Search for a setting: the smallest budget that loses less than a given share, over methods and settings."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from analysis.claims import signed
from analysis.errors import BadSetting, BadText
from analysis.metrics.paired import perplexity_change
from analysis.runs import Result
from analysis.studies.context import STREAMED, Context, check_seed, protocol
from analysis.studies.quality.arms import PART, Arm, Reader, arm, arms
from analysis.studies.ready.candidates import FAMILIES
from analysis.studies.text.calibration import document_windows, text_keys
from analysis.studies.text.held_out import check_range, make_folder

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
) -> Result:
    """The smallest budget that raises perplexity by less than `lose`, over methods that save `saves`, at seven settings
    each, by successive halving.

    Of the stretches of `texts` (hashes), a prompt of `prefix` tokens and the `continuation` after it, half choose and
    half report: whole texts where there are several, else the halves of one. All settings read two stretches; the
    better half goes on to twice as many, until three are left or all of the choosing half is read. Better is a smaller
    budget among those that lose less than `lose`, and a smaller loss among the others. The winner alone is judged on
    the reporting half: it holds where the one-sided 95% limit of its loss stays below `lose`.

    Of methods that save memory or prefill the continuation is scored, and the budget is the share of the KV cache that
    is held, or of the prompt's blocks that is read; of those that save reads all tokens of a stretch are scored, and
    the budget is the share of the causal pairs in the softmax.

    numbers: `rows` (`method label settings budget difference stretches left`), `frontier` (labels of rows that no other
    beats in both), `chosen` (`label method settings budget difference low high upper holds units unit`, measured on the
    reporting half; None where nothing was near), `tied` (labels of the settings that read and lost exactly the same as
    it, or as the nearest), `lose`, `sentence`, `notes`. table: `rows`. It goes on where it was stopped. A prompt has at
    least eight of a method's windows. Errors: BadSetting, BadText.
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
    able = [one for one in left if one.change(dense) <= lose]
    best = min(able, key=lambda one: one.budget) if able else None
    rows = [_row(one, dense, one in left) for one in tried]
    tied = ties(best or min(tried, key=lambda one: one.change(dense)), tried)
    chosen = None if best is None else _judged(best, read, reporting, documents, lose)
    keys = text_keys([context.text(key) for key in texts or []])
    about = {"prefix": read.prefix, "continuation": continuation, "cuts": len(windows), "texts": keys, "seed": seed}
    kernel = STREAMED if saves == "reads" else "each method's own kernel where it has one"
    about |= {"window": windows.shape[1], "kernel": kernel}
    numbers = {
        **{"rows": rows, "frontier": frontier(rows), "chosen": chosen, "tied": tied, "lose": lose, "saves": saves},
        "sentence": _sentence(chosen, rows, tied, lose, saves),
        "notes": _notes(tried, len(choosing), len(reporting)),
        "protocol": protocol("search", lm, (texts or [None])[0], int(windows.size), **about),
    }
    return Result(numbers, {"rows": pd.DataFrame([{name: row[name] for name in COLUMNS} for row in rows])})


def _reader(
    context: Context, model: str, texts: list[str] | None, saves: str, prefix: int | None, continuation: int, cuts: int
) -> tuple[Reader, np.ndarray]:
    """The stretches of the texts with who reads them, and which text each is of. Errors: BadSetting, BadText."""
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
) -> Result:
    """What another worker does of a search: one method on some of its stretches. numbers: `losses`, `budgets`."""
    read, _ = _reader(context, model, texts, saves, prefix, continuation, cuts)
    found = read.found(context, arm(context, read.lm, method).candidate, stretches, 0.0)
    return Result(found | {"protocol": protocol(PART, read.lm, texts[0], len(stretches) * read.windows.shape[1])})


def check_prompt(prefix: int, tried: Sequence[Arm]) -> None:
    """Refuse a prompt in which the window that a method always keeps leaves nothing to choose: rules that differ in
    what they choose would read alike. Errors: BadSetting."""
    window, title = max((one.candidate.settings.get("window", 0), one.candidate.method.title) for one in tried)
    if prefix < WINDOWS * window:
        raise BadSetting(
            f"The prompts have {prefix:,} tokens and {title} always keeps {window:,} of them: give prompts of "
            f"{WINDOWS * window:,} or more tokens, or a smaller window."
        )


def ties(best: Arm, tried: Sequence[Arm]) -> list[str]:
    """Labels of the other arms that read and lost exactly what `best` did, on the stretches that both have read."""

    def same(one: Arm) -> bool:
        count = min(len(one.losses), len(best.losses))
        return one.losses[:count] == best.losses[:count] and one.budgets[:count] == best.budgets[:count]

    return [one.candidate.label for one in tried if one is not best and same(one)]


def split(documents: np.ndarray) -> tuple[list[int], list[int]]:
    """(stretches that choose, stretches that report): the first half of the documents and the rest; of one document its
    halves."""
    known = np.unique(documents)
    if len(known) > 1:
        first = np.isin(documents, known[: len(known) // 2])
    else:
        first = np.arange(len(documents)) < len(documents) // 2
    return np.flatnonzero(first).tolist(), np.flatnonzero(~first).tolist()


def halving(arms: list[Arm], dense: Arm, stretches: list[int], lose: float, read: Read) -> list[Arm]:
    """The arms that are left, the best first: all read the first stretches, and the better half twice as many."""
    left, seen, goal = list(arms), 0, FIRST
    while True:
        goal = min(goal, len(stretches))
        share = 0.75 * (goal - seen) / len(stretches)
        read([(one, stretches[seen:goal]) for one in (dense, *left)], 0.1 + 0.75 * seen / len(stretches), share)
        left.sort(key=lambda one: rank(one.change(dense), one.budget, lose))
        if goal == len(stretches):
            return left
        left = left[: max(FEWEST, -(-len(left) // 2))]
        seen, goal = goal, len(stretches) if len(left) <= FEWEST else 2 * goal


def rank(change: float, budget: float, lose: float) -> tuple[bool, float]:
    """Smaller is better: first those that lose less than `lose`, by their budget; then the others, by their loss."""
    return (False, budget) if change <= lose else (True, change)


def frontier(rows: list[dict]) -> list[str]:
    """Labels of the rows beside which no other has a smaller budget and loses no more, the cheapest first."""
    found: list[dict] = []
    for row in sorted(rows, key=lambda row: (row["budget"], row["difference"])):
        if not found or row["difference"] < found[-1]["difference"]:
            found.append(row)
    return [row["label"] for row in found]


def _row(one: Arm, dense: Arm, left: bool) -> dict:
    about = {"method": one.candidate.name, "label": one.candidate.label, "settings": one.candidate.settings}
    about |= {"budget": one.budget, "difference": one.change(dense)}
    return about | {"stretches": len(one.losses), "left": left}


def _judged(best: Arm, read: Reader, stretches: list[int], documents: np.ndarray, lose: float) -> dict:
    """The winner on the half that reports."""
    own, dense = Arm(best.candidate, best.spec), arm(read.context, read.lm, {"name": "dense"})
    read([(dense, stretches), (own, stretches)], 0.85, 0.15)
    mine = documents[stretches]
    several = mine if len(set(mine.tolist())) > 1 else None
    found = perplexity_change(np.array(own.losses), np.array(dense.losses), several)
    holds = None if found.upper is None else found.upper <= lose
    about = {"method": own.candidate.name, "label": own.candidate.label, "settings": own.candidate.settings}
    about |= {"budget": own.budget, "difference": found.change, "low": found.low, "high": found.high}
    return about | {"upper": found.upper, "holds": holds, "units": found.units, "unit": found.unit}


def _notes(tried: list[Arm], choosing: int, reporting: int) -> list[str]:
    bounds = dict.fromkeys(one.candidate.method.title for one in tried if one.candidate.method.ceiling)
    said = "{} looks at every key to choose: what it reads is a bound for other methods, not a saving."
    return [f"{choosing} stretches chose, {reporting} others report.", *map(said.format, bounds)]


def _sentence(chosen: dict | None, rows: list[dict], tied: list[str], lose: float, saves: str) -> str:
    does, part = OF[saves]
    if chosen is None:
        best = min(rows, key=lambda row: row["difference"])
        said = f"No setting loses less than {lose:.0%}: the nearest, {_named(best['label'], tied)}, {does} "
        said += f"{best['budget']:.0%} {part}"
        return f"{said} and changes perplexity by {signed(best['difference'], '.1%')}."
    verdict = {True: "holds", False: "does not hold", None: "cannot be judged on so few"}[chosen["holds"]]
    upper = "" if chosen["upper"] is None else f", at most {signed(chosen['upper'], '.1%')} (one-sided 95%)"
    named = _named(chosen["label"], tied)
    return (
        f"{named[0].upper()}{named[1:]} {does} {chosen['budget']:.0%} {part}. On text that did not choose it, it "
        f"changes perplexity by {signed(chosen['difference'], '.1%')}{upper}: “less than {lose:.0%}” {verdict} "
        f"({chosen['units']} {chosen['unit']})."
    )


def _named(label: str, tied: list[str]) -> str:
    """A setting by its label, with all that it ties with."""
    return f"a tie of {' and '.join([label, *tied])} (the same to the last digit)" if tied else label
