"""What the heads of a model are called: scores on texts made for each name, a null, and whether ablation confirms."""

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.metrics.intervals import DOCUMENTS, interval
from analysis.models import Model
from analysis.probes.ablation import WAYS, ablated
from analysis.probes.named import DRAWS, LENGTH, SETTLED, Made, needles, repeats
from analysis.runs import Result
from analysis.seam.attention import apply
from analysis.statistics.names import NAMES, PatternReading, copied, steady
from analysis.studies.context import Context, check_seed, protocol

TEXTS = 6  # of each kind
CONFIRM = 3  # heads of a name that are taken away, the highest scores first
OTHERS = 4  # heads without such a name that are taken away beside them
FEWEST = 32  # tokens of a text
REPEATS, NEEDLE = "repeats", "needle"
CONFIRMED, NOT, UNTRIED, UNNEEDED = "confirmed", "not confirmed", "not tried", "no text needs it"


def names(
    model: str = "demo",
    sequences: int = TEXTS,
    confirm: int = CONFIRM,
    by: str = "zero",
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """Names of heads by published definitions, on `sequences` made texts of each kind, no text of the reader's.

    A head has a name where its mean score reaches the name's limit and every displaced variant of the same measure
    stays below the score; it is `clear` where the 95% interval over the texts lies above both. `confirm` heads of a
    name are then taken away `by` one of the ways of `ablate`, with as many others: a name is `confirmed` where the
    tokens that need it get worse than the others of the text, the interval above 0, and by more than without any of
    the others. Heads that stand in for each other show only together: all of a name are taken away at once, with as
    many others. tables: `scores` (every head and name: `layer head name score low high null null_high others named
    clear`; null: mean and highest of the displaced, others: median of the other heads). numbers: `rows` (the named:
    the same and `rise low_rise high_rise others_rise verdict`, nats per token), `together` (`name heads rise low_rise
    high_rise others_rise verdict`), `controls` (head -> rise), `definitions`, `sentence`, `notes`. Errors: BadSetting.
    """
    check_seed(seed)
    lm = context.model(model)
    if not DOCUMENTS <= sequences <= 256 or not 0 <= confirm <= 64:
        raise BadSetting(
            f"Names rest on {DOCUMENTS} to 256 texts and up to 64 heads of each are taken away: {sequences} texts and "
            f"{confirm} heads were asked for."
        )
    if by not in WAYS:
        raise BadSetting(f"A head's output is replaced by {', '.join(WAYS)}, not by {by!r}.")
    if lm.max_positions < FEWEST:
        raise BadSetting(f"Names take texts of {FEWEST} tokens, and this model reads {lm.max_positions}.")
    made, notes = _made(lm, sequences, seed)
    scores = []
    for place, (kind, some) in enumerate(made.items()):
        context.progress(0.4 * place / len(made), f"reading texts, {kind}")
        scores += _scores(lm, some, np.random.default_rng([seed, 1]))
    table = pd.concat(scores, ignore_index=True)
    rows = table[table["named"]].drop(columns="named").astype(object)
    rows = rows.where(rows.notna(), None).to_dict("records")
    rows.sort(key=lambda row: (list(NAMES).index(row["name"]), -row["score"]))
    controls, together = {}, []
    for place, (kind, some) in enumerate(made.items()):
        within = context.within(0.4 + 0.6 * place / len(made), 0.6 / len(made))
        controls[kind], groups = _confirm(within, lm, some, kind, rows, confirm, by, seed)
        together += groups
    about = {"seed": seed, "by": by, "draws": DRAWS, "unit": "texts", "units": sequences}
    about["window"] = made[REPEATS].ids.shape[1]
    numbers = {
        "rows": rows,
        "definitions": [{"name": name, **one._asdict()} for name, one in NAMES.items()],
        "controls": controls,
        "together": together,
        "heads": lm.num_layers * lm.num_heads,
        "sentence": _sentence(rows, together, lm.num_layers * lm.num_heads),
        "notes": notes,
        "protocol": protocol("names", lm, None, sum(some.ids.size for some in made.values()), **about),
    }
    return Result(numbers, {"scores": table}, {})


def _made(lm: Model, texts: int, seed: int) -> tuple[dict[str, Made], list[str]]:
    """kind -> texts, and sentences about what could not be made for this model."""
    length = min(LENGTH, lm.max_positions)
    vocabulary = lm.lm.get_input_embeddings().num_embeddings
    made = {REPEATS: repeats(texts, length, vocabulary, np.random.default_rng([seed, length]))}
    try:
        made[NEEDLE] = needles(lm.tokenizer, texts, length, np.random.default_rng([seed, length]))
    except BadSetting:
        return made, [f"Retrieval is not measured: {length} tokens, all that is read here, hold no needle."]
    return made, []


@torch.no_grad()
def _scores(lm: Model, made: Made, random: np.random.Generator) -> list[pd.DataFrame]:
    """The scores of every head for each name that these texts show."""
    reading = PatternReading(lm.num_layers, lm.num_heads, made.ids.shape, made.spans)
    with apply(lm, METHODS["dense"](), watch=reading.watch):
        lm.lm.base_model(torch.from_numpy(made.ids).to(lm.device), use_cache=False)
    if "retrieval" in made.spans:
        return [_table("retrieval", copied(reading.best, made.spans["retrieval"]))]
    fresh = reading.best[..., : made.fresh]
    mixed = [steady(random.permuted(fresh, axis=-1), SETTLED) for _ in range(DRAWS)]
    found = reading.shares() | {"positional": np.stack([steady(fresh, SETTLED), *mixed])}
    found["even"] = reading.evenness()[None]
    return [_table(name, found[name]) for name in NAMES if name in found]


def _table(name: str, shares: np.ndarray) -> pd.DataFrame:
    """One row per head from its scores [1 + draws, L, H, B], the first the true ones."""
    above, (layers, heads) = NAMES[name].above, shares.shape[1:3]
    means, rows = shares.mean(-1), []  # [R, L, H]
    for layer, head in np.ndindex(layers, heads):
        found, null = interval(shares[0, layer, head]), means[1:, layer, head]
        limit = max(above, null.max(initial=0.0))
        others = np.delete(means[0].ravel(), layer * heads + head)
        rows.append(
            {
                **{"layer": layer, "head": head, "name": name},
                **{"score": found.mean, "low": found.low, "high": found.high},
                **{"null": null.mean() if len(null) else None, "null_high": null.max() if len(null) else None},
                **{"others": float(np.median(others)) if len(others) else None},
                **{"named": found.mean >= above and found.mean >= limit, "clear": found.low >= limit},
            }
        )
    return pd.DataFrame(rows).astype({"null": "float64", "null_high": "float64", "others": "float64"})


def _confirm(
    context: Context, lm: Model, made: Made, kind: str, rows: list[dict], confirm: int, by: str, seed: int
) -> tuple[dict, list[dict]]:
    """Write into `rows`, of each name the highest score first, what taking their heads away does to these texts; what
    it does without others, by their rise, and without all heads of a name at once, beside as many others.

    A rise is of the tokens that need the name less that of the others, so that what else a head does counts on both.
    """
    mine = [row for row in rows if NAMES[row["name"]].needs == kind]
    for row in rows if kind == REPEATS else []:  # once, for what no text needs
        row |= dict.fromkeys(("rise", "low_rise", "high_rise", "others_rise"))
        row["verdict"] = UNTRIED if NAMES[row["name"]].needs else UNNEEDED
    of = {name: [row for row in mine if row["name"] == name] for name in NAMES}
    tried = [_cell(row) for some in of.values() for row in some[:confirm]]
    if not tried:
        return {}, []
    named = {_cell(row) for row in mine}
    free = [cell for cell in np.ndindex(lm.num_layers, lm.num_heads) if cell not in named]
    free = [free[at] for at in np.random.default_rng(seed).permutation(len(free))]
    groups = {name: [_cell(row) for row in some] for name, some in of.items() if len(some) > 1}
    beside = {name: free[: len(cells)] for name, cells in groups.items() if len(cells) <= len(free)}
    sets = [[cell] for cell in [*tried, *free[:OTHERS]]] + [groups[name] for name in beside] + list(beside.values())
    ids = torch.from_numpy(made.ids)
    base = ablated(lm, ids, [], by, seed)
    rises = {}
    for done, cells in enumerate(sets):
        context.progress(done / len(sets), f"without {len(cells)} head{'s' * (len(cells) > 1)}, {kind}")
        if tuple(cells) not in rises:
            rises[tuple(cells)] = rise(ablated(lm, ids, cells, by, seed) - base, made)
    means = {cell: float(rises[cell,].mean()) for cell in free[:OTHERS]}
    for row in mine:
        if _cell(row) in tried:
            row |= _judged(rises[_cell(row),], max(means.values(), default=None))
    together = [
        {"name": name, "heads": len(groups[name])}
        | _judged(rises[tuple(groups[name])], float(rises[tuple(others)].mean()))
        for name, others in beside.items()
    ]
    return {f"{layer}.{head}": mean for (layer, head), mean in means.items()}, together


def _cell(row: dict) -> tuple[int, int]:
    return row["layer"], row["head"]


def _judged(rises: np.ndarray, others: float | None) -> dict:
    """A rise [B] with its interval beside that of others, and whether it confirms."""
    found = interval(rises)
    sure = found.low > 0 and found.mean > (others or 0.0)
    known = {"rise": found.mean, "low_rise": found.low, "high_rise": found.high, "others_rise": others}
    return known | {"verdict": CONFIRMED if sure else NOT}


def rise(change: np.ndarray, made: Made) -> np.ndarray:
    """Change of the loss [B, T - 1] of the tokens that need a name, less that of the rest: [B] means."""
    need, rest = made.needs[:, 1:], made.rest[:, 1:]
    return (change * need).sum(1) / need.sum(1) - (change * rest).sum(1) / rest.sum(1)


def _sentence(rows: list[dict], together: list[dict], heads: int) -> str:
    """How many heads have a name, which, how many of those that were tried are confirmed, and which names together."""
    if not rows:
        return f"None of the {heads} heads fits a name on the texts made for it."
    cells = {(row["layer"], row["head"]) for row in rows}
    counted = {name: sum(row["name"] == name for row in rows) for name in NAMES}
    listed = ", ".join(f"{count} {name}" for name, count in counted.items() if count)
    tried = [row for row in rows if row["verdict"] in (CONFIRMED, NOT)]
    said = f"{len(cells)} of {heads} heads {'has' if len(cells) == 1 else 'have'} a name: {listed}."
    if not tried:
        return f"{said} None of them could be tried by ablation."
    sure = [row for row in tried if row["verdict"] == CONFIRMED]
    which = ", ".join(f"{row['layer']}.{row['head']} ({row['name']})" for row in sure)
    said += f" Ablation confirms {len(sure)} of the {len(tried)} that were tried{': ' + which if which else ''}."
    for one in together:
        said += (
            f" All {one['heads']} {one['name']} heads taken away at once: {one['rise']:+.2f} nats per token on what "
            f"needs them; as many others: {one['others_rise']:+.2f}."
        )
    return said
