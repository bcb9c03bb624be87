"""What the heads of a model are called: scores on texts made for each name, a null, and whether ablation confirms."""

from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...claims import signed
from ...commands.heads import Names
from ...errors import BadSetting
from ...methods import METHODS
from ...metrics.intervals import interval
from ...metrics.quality import records
from ...models import Model
from ...probes.ablation import ablated
from ...probes.named import DRAWS, LENGTH, SETTLED, Made, needles, repeats
from ...seam.attention import apply
from ...statistics.names import NAMES, PatternReading, copied, steady
from ..context import Context, protocol
from ..text.text import numbered

# Made texts of each kind.
TEXTS = Names.sequences
# Heads without such a name that are taken away beside them.
OTHERS = 4
# Tokens that a made text needs at least.
FEWEST = 32
REPEATS, NEEDLE = "repeats", "needle"
CONFIRMED, NOT, UNTRIED, UNNEEDED = "confirmed", "not confirmed", "not tried", "no text needs it"
Cell = tuple[int, int]  # layer, head


@record
class Together:
    """All heads of a name taken away at once."""

    name: str = doc("the name")
    heads: int = doc("heads that have it")
    rise: float = doc("rise of the loss on the tokens that need the name less that on the others, nats per token")
    low_rise: float = doc("lower end of its 95% interval over the texts")
    high_rise: float = doc("upper end of its 95% interval")
    others_rise: float | None = doc("the same rise without as many heads that have no such name")
    verdict: str = doc("confirmed, where the interval lies above 0 and the rise above that of the others, or not")


@record
class HeadNames(Worded):
    """Names of heads by published definitions. The score of a head is its mean over the texts."""

    rows: list[dict] = doc("the named heads: as the table scores, with the rise without each alone and its verdict")
    definitions: list[dict] = doc("what each name means, and from which score on it is given")
    controls: dict = doc("rise without heads that have no such name: kind of text -> head -> nats per token")
    together: list[Together] = doc("all heads of a name at once")
    heads: int = doc("heads of the model")
    scores: pd.DataFrame = doc(
        "every head and name: score low high, null null_high (mean and highest of the displaced variants), others "
        "(median of the other heads), named, clear"
    )


def names(request: Names, *, context: Context) -> HeadNames:
    """Names of heads by published definitions, on made texts of each kind, no text of the reader's.

    A head has a name where its mean score reaches the name's limit and every displaced variant of the same measure
    stays below the score; it is `clear` where the 95% interval over the texts lies above both. `confirm` heads of a
    name are then taken away `by` one of the ways of `ablate`, with as many others: a name is `confirmed` where the
    tokens that need it get worse than the others of the text, the interval above 0, and by more than without any of
    the others. Heads that stand in for each other show only together: all of a name are taken away at once, with as
    many others. Errors: BadSetting.
    """
    lm, seed = context.model(request.model), request.seed
    if lm.max_positions < FEWEST:
        raise BadSetting(f"Names take texts of {FEWEST} tokens, and this model reads {lm.max_positions}.")
    texts_of, notes = _texts(lm, request.sequences, seed)
    scores = []
    for place, (kind, texts) in enumerate(texts_of.items()):
        context.progress(0.4 * place / len(texts_of), f"reading texts, {kind}")
        scores += _scores(lm, texts, np.random.default_rng([seed, 1]))
    table = numbered(lm, pd.concat(scores, ignore_index=True))
    order = {name: place for place, name in enumerate(NAMES)}
    rows = records(table[table["named"]].drop(columns="named"))
    rows.sort(key=lambda row: (order[row["name"]], -row["score"]))
    results: dict[str, Trials] = {}
    for place, (kind, texts) in enumerate(texts_of.items()):
        within = context.within(0.4 + 0.6 * place / len(texts_of), 0.6 / len(texts_of))
        results[kind] = trials(within, lm, texts, kind, rows, request)
    together = [group for result in results.values() for group in result.together]
    about = {"seed": seed, "by": request.by, "draws": DRAWS, "unit": "texts", "units": request.sequences}
    about["window"] = texts_of[REPEATS].ids.shape[1]
    heads, count = lm.num_layers * lm.num_heads, sum(texts.ids.size for texts in texts_of.values())
    return HeadNames(
        rows=(rows := [row | verdict(row, results) for row in rows]),
        definitions=[{"name": name, **definition._asdict()} for name, definition in NAMES.items()],
        controls={kind: result.controls for kind, result in results.items()},
        together=together,
        heads=heads,
        sentence=sentence(rows, together, heads),
        notes=notes,
        scores=table,
        protocol=protocol("names", lm, None, count, **about),
    )


def _texts(lm: Model, texts: int, seed: int) -> tuple[dict[str, Made], list[str]]:
    """kind -> texts, and sentences about what could not be made for this model."""
    length = min(LENGTH, lm.max_positions)
    vocabulary = lm.lm.get_input_embeddings().num_embeddings
    texts_by_kind = {REPEATS: repeats(texts, length, vocabulary, np.random.default_rng([seed, length]))}
    try:
        texts_by_kind[NEEDLE] = needles(lm.tokenizer, texts, length, np.random.default_rng([seed, length]))
    except BadSetting:
        return texts_by_kind, [f"Retrieval is not measured: {length} tokens, all that is read here, hold no needle."]
    return texts_by_kind, []


@torch.no_grad()
def _scores(lm: Model, texts: Made, random: np.random.Generator) -> list[pd.DataFrame]:
    """The scores of every head for each name that these texts show."""
    reading = PatternReading(lm.num_layers, lm.num_heads, texts.ids.shape, texts.spans)
    with apply(lm, METHODS["dense"](), watch=reading.watch):
        lm.lm.base_model(torch.from_numpy(texts.ids).to(lm.device), use_cache=False)
    if "retrieval" in texts.spans:
        return [score_table("retrieval", copied(reading.best, texts.spans["retrieval"]))]
    fresh = reading.best[..., : texts.fresh]
    mixed = [steady(random.permuted(fresh, axis=-1), SETTLED) for _ in range(DRAWS)]
    shares = reading.shares() | {"positional": np.stack([steady(fresh, SETTLED), *mixed])}
    shares["even"] = reading.evenness()[None]
    return [score_table(name, shares[name]) for name in NAMES if name in shares]


def score_table(name: str, shares: np.ndarray) -> pd.DataFrame:
    """One row per head from its scores [1 + draws, L, H, B], the first the true ones."""
    means, rows = shares.mean(-1), []  # [1 + draws, L, H]
    for layer, head in np.ndindex(shares.shape[1:3]):
        score, null = interval(shares[0, layer, head]), means[1:, layer, head]
        limit = max(NAMES[name].above, null.max(initial=0.0))
        rivals = np.delete(means[0].ravel(), layer * shares.shape[2] + head)
        row = {"layer": layer, "head": head, "name": name, "score": score.mean, "low": score.low, "high": score.high}
        row |= {"null": null.mean() if len(null) else np.nan, "null_high": null.max(initial=-np.inf)}
        row |= {"others": np.median(rivals) if len(rivals) else np.nan}
        rows.append(row | {"named": score.mean >= limit, "clear": score.low >= limit})
    return pd.DataFrame(rows).replace(-np.inf, np.nan)


@dataclass(frozen=True)
class Trials:
    """What taking heads away does to the texts of one kind."""

    # (name, head) -> rise with its interval and verdict.
    judged: dict[tuple[str, Cell], dict]
    # layer.head without a name that these texts need -> rise.
    controls: dict[str, float]
    together: list[Together]


def trials(context: Context, lm: Model, texts: Made, kind: str, rows: list[dict], request: Names) -> Trials:
    """What taking heads away does to texts of a kind: `confirm` of each name, the highest scores first, heads without
    others, and all heads of a name at once, beside as many others.

    A rise is of the tokens that need the name less that of the others, so that what else a head does counts on both.
    """
    groups: dict[str, list[Cell]] = {}
    for row in rows:
        if NAMES[row["name"]].needs == kind:
            groups.setdefault(row["name"], []).append(_cell(row))
    if not request.confirm or not groups:
        return Trials({}, {}, [])
    named = {cell for cells in groups.values() for cell in cells}
    free = [cell for cell in product(lm.layer_numbers, range(lm.num_heads)) if cell not in named]
    free = [free[place] for place in np.random.default_rng(request.seed).permutation(len(free))]
    # A group of one was tried alone; a group without as many unnamed heads has nothing to be compared with.
    beside = {name: free[: len(cells)] for name, cells in groups.items() if 1 < len(cells) <= len(free)}
    alone = [cell for cells in groups.values() for cell in cells[: request.confirm]] + free[:OTHERS]
    sets = [[cell] for cell in alone] + [groups[name] for name in beside] + list(beside.values())
    ids = torch.from_numpy(texts.ids)
    base = ablated(lm, ids, [], request.by, request.seed)
    rises: dict[tuple[Cell, ...], np.ndarray] = {}
    for done, cells in enumerate(sets):
        context.progress(done / len(sets), f"without {len(cells)} head{'s' * (len(cells) > 1)}, {kind}")
        if tuple(cells) not in rises:
            rises[tuple(cells)] = rise(ablated(lm, ids, cells, request.by, request.seed) - base, texts)
    controls = {cell: float(rises[cell,].mean()) for cell in free[:OTHERS]}
    strongest = max(controls.values(), default=None)
    judged = {
        (name, cell): _judged(rises[cell,], strongest)
        for name, cells in groups.items()
        for cell in cells[: request.confirm]
    }
    together = [
        Together(
            name=name, heads=len(rivals), **_judged(rises[tuple(groups[name])], float(rises[tuple(rivals)].mean()))
        )
        for name, rivals in beside.items()
    ]
    return Trials(judged, {f"{layer}.{head}": mean for (layer, head), mean in controls.items()}, together)


def _cell(row: dict) -> Cell:
    return row["layer"], row["head"]


def _judged(rises: np.ndarray, rivals: float | None) -> dict:
    """A rise [B] with its interval beside that of others, and whether it confirms."""
    spread = interval(rises)
    # At least five texts are made, so there is an interval.
    assert spread.low is not None and spread.mean is not None
    confirms = spread.low > 0 and spread.mean > (rivals or 0.0)
    numbers = {"rise": spread.mean, "low_rise": spread.low, "high_rise": spread.high, "others_rise": rivals}
    return numbers | {"verdict": CONFIRMED if confirms else NOT}


def verdict(row: dict, results: dict[str, Trials]) -> dict:
    """What taking a named head away alone did, or why it was not tried."""
    needs = NAMES[row["name"]].needs
    untried = dict.fromkeys(("rise", "low_rise", "high_rise", "others_rise"))
    if not needs:
        return untried | {"verdict": UNNEEDED}
    return results[needs].judged.get((row["name"], _cell(row)), untried | {"verdict": UNTRIED})


def rise(change: np.ndarray, texts: Made) -> np.ndarray:
    """Change of the loss [B, T - 1] of the tokens that need a name, less that of the rest: [B] means."""
    need, spared = texts.needs[:, 1:], texts.rest[:, 1:]
    return (change * need).sum(1) / need.sum(1) - (change * spared).sum(1) / spared.sum(1)


def sentence(rows: list[dict], together: list[Together], heads: int) -> str:
    """How many heads have a name, which, how many of those that were tried are confirmed, and which names together."""
    if not rows:
        return f"None of the {heads} heads fits a name on the texts made for it."
    cells, counted = {_cell(row) for row in rows}, Counter(row["name"] for row in rows)
    listed = ", ".join(f"{counted[name]} {name}" for name in NAMES if counted[name])
    # A head may have several names, so that those add up to more than the heads.
    several = f", {len(rows)} names in all" if len(rows) > len(cells) else ""
    text = f"{len(cells)} of {heads} heads {'has' if len(cells) == 1 else 'have'} a name{several}: {listed}."
    tried = [row for row in rows if row["verdict"] in (CONFIRMED, NOT)]
    if not tried:
        return f"{text} None of them could be tried by ablation."
    confirmed = [f"{row['layer']}.{row['head']} ({row['name']})" for row in tried if row["verdict"] == CONFIRMED]
    text += f" Ablation confirms {len(confirmed)} of the {len(tried)} that were tried"
    text += f": {', '.join(confirmed)}." if confirmed else "."
    for group in together:
        text += f" Without all {group.heads} {group.name} heads: {signed(group.rise, '.1f')} nats"
        others = group.others_rise
        text += "." if others is None else f"; without {group.heads} others: {signed(others, '.1f')}."
    return text
