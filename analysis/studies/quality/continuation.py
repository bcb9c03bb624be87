"""What follows a prompt whose KV cache was compressed once, or whose blocks were read in part: loss, keys and bytes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from analysis.claims import signed
from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.metrics.paired import perplexity_change, perplexity_of
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.quality.at_share import at_budget
from analysis.studies.quality.following import NOTHING, Followed, Turn, follow
from analysis.studies.ready.candidates import FAMILIES, Candidate, candidates
from analysis.studies.text.calibration import document_windows, text_keys
from analysis.studies.text.held_out import check_range

MISSED = 0.1  # of a budget: farther from it is said
MOST_CUTS, MOST = 64, 64  # cuts of a text; methods and ratios
UNKNOWN, KNOWN, SECOND = "question unknown", "question known", "second question"
COLUMNS = (
    "label ratio setting kept_keys kv_bytes kv_share kv_most_bytes blocks perplexity difference low high units".split()
)  # of the table; low and high are of the difference


def continuation(
    model: str = "demo",
    texts: list[str] | None = None,
    methods: list[dict] | None = None,
    prefix: int | None = None,
    continuation: int = 256,
    cuts: int = 4,
    ratios: list[float] | None = None,
    share: float | None = None,
    question: str = "",
    second: str = "",
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """Read `prefix` tokens of each text (hashes) under each of `methods`, then score the `continuation` tokens after.

    Methods that save memory compress the KV cache once, after the prefix; those that save prefill time read its blocks;
    all methods that save memory unless given. Of each text up to `cuts` stretches are taken, evenly spaced; the longest
    prefix that the model's context allows unless given. `ratios`: shares of the keys to remove, one row each, of
    methods that have a ratio. `share`: every method set so that it keeps this share of the KV cache, or reads this
    share of the prompt's blocks, in the first stretch. With a `question`, a text that stands between prefix and
    continuation, there are two settings: *unknown*, the compression sees the prefix only, and *known*, it sees the
    question too; with a `second` question that one is read through the cache that was compressed for the first.

    numbers: `rows`, dense first in every setting: `method label setting ratio`, `kept_keys` per layer and key-value
    head, `kv_bytes` really held after the prompt, `kv_share` of dense attention's, `kv_most_bytes` held at once until
    then (a layer drops its keys before the next one is read), `blocks` (share of the prompt's that
    was read, or None), `perplexity` of the continuation, `difference` to dense as a share with `low`, `high` and the
    `unit` of `units` (documents, of one text its stretches; none below five); `sentence`, `notes`. tables: `rows` in
    short; `losses` (`row document cut position loss`).
    Errors: BadSetting, BadText.
    """
    check_seed(seed)
    check_range("The number of cuts", cuts, 1, MOST_CUTS)
    check_range("The length of the continuation", continuation, 2, 1 << 16)
    if second and not question:
        raise BadSetting("A second question needs a first one: give --question too.")
    lm = context.model(model)
    chosen = _chosen(context, lm, methods, ratios)
    turns = _turns(lm, question, second)
    longest = lm.max_positions - continuation - max(len(turn.known) + len(turn.asked) for turn in turns)
    prefix = longest if prefix is None else prefix
    check_range("The length of the prefix", prefix, 8, longest)
    named = [context.text(key) for key in texts or []]
    if not named:
        raise BadSetting("A continuation needs at least one text: name one.")
    size = prefix + continuation
    belongs = (lm.name, lm.revision, str(lm.device), tuple(texts or ()), prefix, continuation, cuts)
    most = cuts * len(named) * size
    windows, documents = context.once("stretches", belongs, lambda: document_windows(lm, named, size, most, "text"))
    rows, tables, notes = [], [], []
    if share is not None:
        check_range("The share", share, 0.01, 1.0)
        at_share = at_budget(context, lm, torch.as_tensor(windows[0]), prefix, share)
        chosen = [one if one.name == "dense" else at_share(one) for one in chosen]
    for place, turn in enumerate(turns):
        found = []
        for at, one in enumerate(chosen):
            context.progress((place + at / len(chosen)) / len(turns), f"{one.label}, {turn.setting}")

            def read(one: Candidate = one, turn: Turn = turn) -> list[Followed]:
                return [follow(lm, one.method, torch.as_tensor(window), prefix, turn) for window in windows]

            kept = f"after {turn.setting}"  # so that a slider's move costs one pass of one method
            found.append(context.once(kept, (*belongs, turn), read) if one.method.dense else read())
        for one, mine in zip(chosen, found, strict=True):
            tables.append(_table(len(rows), mine, documents))
            rows.append(_row(one, turn, mine, found[0], documents))
            notes += _missed(rows[-1], share)
            notes += [f"{one.label} hid keys instead of dropping them: its cache holds every key."] * mine[0].masked
    about = {"prefix": prefix, "continuation": continuation, "cuts": len(windows), "question": question or None}
    about |= {"share": share, "second": second or None, "texts": text_keys(named), "seed": seed, "window": size}
    about |= {"kernel": "each method's own kernel where it has one"}
    numbers = {
        "rows": rows,
        "sentence": _sentence(rows),
        "notes": list(dict.fromkeys(notes)),
        "protocol": protocol("continuation", lm, (texts or [None])[0], int(windows.size), **about),
    }
    short = pd.DataFrame([{name: row[name] for name in COLUMNS} for row in rows])
    return Result(numbers, {"rows": short, "losses": pd.concat(tables, ignore_index=True)})


def _chosen(context: Context, lm: Model, methods: list[dict] | None, ratios: list[float] | None) -> list[Candidate]:
    """Dense first, then the methods asked for, once for each ratio where they have one. Errors: BadSetting."""
    if methods is None:
        methods = [{"name": one.name} for one in candidates(context, lm, None, ("memory",))]
    asked = [{"name": "dense"}]
    for one in methods:
        with_ratio = ratios and "ratio" in getattr(METHODS.get(one.get("name")), "__dataclass_fields__", ())
        every = [one | {"settings": {**(one.get("settings") or {}), "ratio": ratio}} for ratio in ratios or ()]
        asked += every if with_ratio else [one] if one.get("name") != "dense" else []
    if len(asked) > MOST:
        raise BadSetting(f"{len(asked):,} methods and ratios were asked for: choose at most {MOST}.")
    return [candidates(context, lm, [one], FAMILIES)[0] for one in asked]


def _turns(lm: Model, question: str, second: str) -> list[Turn]:
    """The settings that are compared."""
    first, other = (lm.tokenizer(words, add_special_tokens=False)["input_ids"] for words in (question, second))
    if not question:
        return [NOTHING]
    found = [Turn(UNKNOWN, [], first), Turn(KNOWN, first, [])]
    return [*found, Turn(SECOND, first, other)] if second else found


def _table(row: int, found: Sequence[Followed], documents: np.ndarray) -> pd.DataFrame:
    parts = []
    for cut, (one, document) in enumerate(zip(found, documents, strict=True)):
        places = np.arange(len(one.losses))
        parts.append(
            pd.DataFrame({"row": row, "document": document, "cut": cut, "position": places, "loss": one.losses})
        )
    return pd.concat(parts, ignore_index=True)


def _row(one: Candidate, turn: Turn, found: list[Followed], dense: list[Followed], documents: np.ndarray) -> dict:
    losses, baseline = (np.stack([part.losses for part in side]) for side in (found, dense))
    several = documents if len(set(documents.tolist())) > 1 else None  # of one text its stretches are the units
    change, plain = perplexity_change(losses, baseline, several), perplexity_of(losses, several)
    held, every = (float(np.mean([part.kv_bytes for part in side])) for side in (found, dense))
    return {
        "method": one.name,
        "label": one.label,
        "settings": one.settings,
        "setting": turn.setting,
        "ratio": one.settings.get("ratio"),
        "kept_keys": float(np.mean([part.keys for part in found])),
        "kv_bytes": round(held),
        "kv_share": held / every,
        "kv_most_bytes": round(float(np.mean([part.kv_most for part in found]))),
        "blocks": None if found[0].blocks is None else float(np.mean([part.blocks for part in found])),
        "perplexity": plain.change,
        "difference": change.change,
        "low": change.low,
        "high": change.high,
        "units": change.units,
        "unit": change.unit,
    }


def _missed(row: dict, share: float | None) -> list[str]:
    """That a method comes nowhere near the share that was asked for; nothing where it does."""
    kept, what = (row["kv_share"], "keeps") if row["blocks"] is None else (row["blocks"], "reads")
    if share is None or row["method"] == "dense" or abs(kept / share - 1) <= MISSED:
        return []
    return [f"{row['label']} {what} {kept:.0%}: none of its settings comes nearer to {share:.0%} of this prompt."]


def _sentence(rows: list[dict]) -> str:
    """The gentlest and the harshest row, in words."""
    others = [row for row in rows if row["method"] != "dense"]
    if not others:
        return f"Dense attention predicts what follows with a perplexity of {rows[0]['perplexity']:.2f}."
    best, worst = (pick(others, key=lambda row: row["difference"]) for pick in (min, max))
    said = "{label} ({setting}): {change} perplexity on what follows, {kv_share:.0%} of dense attention's cache"
    shown = [best] if best is worst else [best, worst]
    return "; ".join(said.format(**row, change=signed(row["difference"], ".1%")) for row in shown) + "."
