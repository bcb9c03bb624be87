"""What the heads of a model are called: scores on texts made for each name, a null, and whether ablation confirms."""

from collections import Counter

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...errors import BadSetting
from ...methods import METHODS
from ...metrics.intervals import DOCUMENTS, interval
from ...models import Model
from ...probes.ablation import ablated, check_way
from ...probes.named import DRAWS, LENGTH, SETTLED, Made, needles, repeats
from ...seam.attention import apply
from ...statistics.names import NAMES, PatternReading, copied, steady
from ..context import Context, check_seed, protocol

TEXTS = 6  # of each kind
CONFIRM = 3  # heads of a name that are taken away, the highest scores first
OTHERS = 4  # heads without such a name that are taken away beside them
FEWEST = 32  # tokens of a text
REPEATS, NEEDLE = "repeats", "needle"
CONFIRMED, NOT, UNTRIED, UNNEEDED = "confirmed", "not confirmed", "not tried", "no text needs it"


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


def names(
    model: str = "demo",
    sequences: int = TEXTS,
    confirm: int = CONFIRM,
    by: str = "zero",
    seed: int = 0,
    *,
    context: Context,
) -> HeadNames:
    """Names of heads by published definitions, on `sequences` made texts of each kind, no text of the reader's.

    A head has a name where its mean score reaches the name's limit and every displaced variant of the same measure
    stays below the score; it is `clear` where the 95% interval over the texts lies above both. `confirm` heads of a
    name are then taken away `by` one of the ways of `ablate`, with as many others: a name is `confirmed` where the
    tokens that need it get worse than the others of the text, the interval above 0, and by more than without any of
    the others. Heads that stand in for each other show only together: all of a name are taken away at once, with as
    many others. Errors: BadSetting.
    """
    check_seed(seed)
    lm = context.model(model)
    if not DOCUMENTS <= sequences <= 256 or not 0 <= confirm <= 64:
        raise BadSetting(
            f"Names rest on {DOCUMENTS} to 256 texts and up to 64 heads of each are taken away: {sequences} texts and "
            f"{confirm} heads were asked for."
        )
    check_way(by)
    if lm.max_positions < FEWEST:
        raise BadSetting(f"Names take texts of {FEWEST} tokens, and this model reads {lm.max_positions}.")
    texts_of, notes = _texts(lm, sequences, seed)
    scores = []
    for place, (kind, texts) in enumerate(texts_of.items()):
        context.progress(0.4 * place / len(texts_of), f"reading texts, {kind}")
        scores += _scores(lm, texts, np.random.default_rng([seed, 1]))
    table = pd.concat(scores, ignore_index=True)
    rows = table[table["named"]].drop(columns="named").astype(object)
    rows = rows.where(rows.notna(), None).to_dict("records")
    rows.sort(key=lambda row: (list(NAMES).index(row["name"]), -row["score"]))
    controls, together = {}, []
    for place, (kind, texts) in enumerate(texts_of.items()):
        within = context.within(0.4 + 0.6 * place / len(texts_of), 0.6 / len(texts_of))
        controls[kind], groups = _confirm(within, lm, texts, kind, rows, confirm, by, seed)
        together += groups
    about = {"seed": seed, "by": by, "draws": DRAWS, "unit": "texts", "units": sequences}
    about["window"] = texts_of[REPEATS].ids.shape[1]
    heads, count = lm.num_layers * lm.num_heads, sum(texts.ids.size for texts in texts_of.values())
    return HeadNames(
        rows=rows,
        definitions=[{"name": name, **definition._asdict()} for name, definition in NAMES.items()],
        controls=controls,
        together=together,
        heads=heads,
        sentence=_sentence(rows, together, heads),
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
        return [_table("retrieval", copied(reading.best, texts.spans["retrieval"]))]
    fresh = reading.best[..., : texts.fresh]
    mixed = [steady(random.permuted(fresh, axis=-1), SETTLED) for _ in range(DRAWS)]
    shares = reading.shares() | {"positional": np.stack([steady(fresh, SETTLED), *mixed])}
    shares["even"] = reading.evenness()[None]
    return [_table(name, shares[name]) for name in NAMES if name in shares]


def _table(name: str, shares: np.ndarray) -> pd.DataFrame:
    """One row per head from its scores [1 + draws, L, H, B], the first the true ones."""
    above, (layers, heads) = NAMES[name].above, shares.shape[1:3]
    means, rows = shares.mean(-1), []  # [1 + draws, L, H]
    for layer, head in np.ndindex(layers, heads):
        score, null = interval(shares[0, layer, head]), means[1:, layer, head]
        limit = max(above, null.max(initial=0.0))
        rivals = np.delete(means[0].ravel(), layer * heads + head)
        row = {"layer": layer, "head": head, "name": name, "score": score.mean, "low": score.low, "high": score.high}
        row |= dict.fromkeys(("null", "null_high", "others"), np.nan)
        if len(null):
            row |= {"null": null.mean(), "null_high": null.max()}
        if len(rivals):
            row["others"] = float(np.median(rivals))
        rows.append(row | {"named": score.mean >= limit, "clear": score.low >= limit})
    return pd.DataFrame(rows)


def _confirm(
    context: Context, lm: Model, texts: Made, kind: str, rows: list[dict], confirm: int, by: str, seed: int
) -> tuple[dict, list[Together]]:
    """Write into `rows`, of each name the highest score first, what taking their heads away does to these texts; what
    it does without others, by their rise, and without all heads of a name at once, beside as many others.

    A rise is of the tokens that need the name less that of the others, so that what else a head does counts on both.
    """
    if kind == REPEATS:  # once, for the names that no text needs
        for row in rows:
            row |= dict.fromkeys(("rise", "low_rise", "high_rise", "others_rise"))
            row["verdict"] = UNTRIED if NAMES[row["name"]].needs else UNNEEDED
    needing = [row for row in rows if NAMES[row["name"]].needs == kind]
    groups = {name: [_cell(row) for row in needing if row["name"] == name] for name in NAMES}
    tried = [cell for cells in groups.values() for cell in cells[:confirm]]
    if not tried:
        return {}, []
    named = {_cell(row) for row in needing}
    free = [cell for cell in np.ndindex(lm.num_layers, lm.num_heads) if cell not in named]
    free = [free[place] for place in np.random.default_rng(seed).permutation(len(free))]
    # A group of one was tried alone; a group without as many unnamed heads has nothing to be compared with.
    beside = {name: free[: len(cells)] for name, cells in groups.items() if 1 < len(cells) <= len(free)}
    sets = [[cell] for cell in [*tried, *free[:OTHERS]]] + [groups[name] for name in beside] + list(beside.values())
    ids = torch.from_numpy(texts.ids)
    base = ablated(lm, ids, [], by, seed)
    rises: dict[tuple, np.ndarray] = {}
    for done, cells in enumerate(sets):
        context.progress(done / len(sets), f"without {len(cells)} head{'s' * (len(cells) > 1)}, {kind}")
        if tuple(cells) not in rises:
            rises[tuple(cells)] = rise(ablated(lm, ids, cells, by, seed) - base, texts)
    means = {cell: float(rises[cell,].mean()) for cell in free[:OTHERS]}
    for row in needing:
        if _cell(row) in tried:
            row |= _judged(rises[_cell(row),], max(means.values(), default=None))
    together = []
    for name, rivals in beside.items():
        judged = _judged(rises[tuple(groups[name])], float(rises[tuple(rivals)].mean()))
        together.append(Together(name=name, heads=len(groups[name]), **judged))
    return {f"{layer}.{head}": mean for (layer, head), mean in means.items()}, together


def _cell(row: dict) -> tuple[int, int]:
    return row["layer"], row["head"]


def _judged(rises: np.ndarray, rivals: float | None) -> dict:
    """A rise [B] with its interval beside that of others, and whether it confirms."""
    spread = interval(rises)
    confirms = spread.low > 0 and spread.mean > (rivals or 0.0)
    numbers = {"rise": spread.mean, "low_rise": spread.low, "high_rise": spread.high, "others_rise": rivals}
    return numbers | {"verdict": CONFIRMED if confirms else NOT}


def rise(change: np.ndarray, texts: Made) -> np.ndarray:
    """Change of the loss [B, T - 1] of the tokens that need a name, less that of the rest: [B] means."""
    need, spared = texts.needs[:, 1:], texts.rest[:, 1:]
    return (change * need).sum(1) / need.sum(1) - (change * spared).sum(1) / spared.sum(1)


def _sentence(rows: list[dict], together: list[Together], heads: int) -> str:
    """How many heads have a name, which, how many of those that were tried are confirmed, and which names together."""
    if not rows:
        return f"None of the {heads} heads fits a name on the texts made for it."
    cells = {_cell(row) for row in rows}
    counted = Counter(row["name"] for row in rows)
    listed = ", ".join(f"{counted[name]} {name}" for name in NAMES if counted[name])
    tried = [row for row in rows if row["verdict"] in (CONFIRMED, NOT)]
    sentence = f"{len(cells)} of {heads} heads {'has' if len(cells) == 1 else 'have'} a name: {listed}."
    if not tried:
        return f"{sentence} None of them could be tried by ablation."
    confirmed = [f"{row['layer']}.{row['head']} ({row['name']})" for row in tried if row["verdict"] == CONFIRMED]
    sentence += f" Ablation confirms {len(confirmed)} of the {len(tried)} that were tried"
    sentence += f": {', '.join(confirmed)}." if confirmed else "."
    for group in together:
        sentence += (
            f" All {group.heads} {group.name} heads taken away at once: {group.rise:+.2f} nats per token on what needs "
            f"them; as many others: {group.others_rise:+.2f}."
        )
    return sentence
