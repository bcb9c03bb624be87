"""What follows a prompt whose KV cache was compressed once, or whose blocks were read in part: loss, keys and bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.attention import apply
from analysis.cache import CompactLayer, GrowingCache, cache_bytes, keys_held
from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.paired import perplexity_change, perplexity_of
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.ready.candidates import FAMILIES, Candidate, candidates
from analysis.studies.text.calibration import document_windows, text_keys
from analysis.studies.text.held_out import check_range

MOST_CUTS, MOST = 64, 64  # cuts of a text; methods and ratios
PLAIN, UNKNOWN, KNOWN, SECOND = "no question", "question unknown", "question known", "second question"
COLUMNS = (
    "label ratio setting kept_keys kv_bytes kv_share perplexity difference low high units".split()
)  # of the table; low and high are of the difference


@dataclass(frozen=True)
class Turn:
    """What stands between the prefix and what is scored: tokens that the compression sees, and tokens it does not."""

    setting: str
    known: list[int]
    asked: list[int]


@dataclass(frozen=True)
class Followed:
    """Losses [n] of what follows one prompt in nats; of the KV cache when the prompt was read, bytes and mean keys per
    layer and key-value head; `masked`: keys that were to leave were hidden instead."""

    losses: np.ndarray
    kv_bytes: int
    keys: float
    masked: bool


def continuation(
    model: str = "demo",
    texts: list[str] | None = None,
    methods: list[dict] | None = None,
    prefix: int | None = None,
    continuation: int = 256,
    cuts: int = 4,
    ratios: list[float] | None = None,
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
    methods that have a ratio. With a `question`, a text that stands between prefix and continuation, there are two
    settings: *unknown*, the compression sees the prefix only, and *known*, it sees the question too; with a `second`
    question that one is read through the cache that was compressed for the first.

    numbers: `rows`, dense first in every setting: `method label setting ratio`, `kept_keys` per layer and key-value
    head, `kv_bytes` really held after the prompt, `kv_share` of dense attention's, `perplexity` of the continuation,
    `difference` to dense as a share with `low`, `high` and the `unit` of `units` (documents; none below five);
    `sentence`, `notes`. tables: `rows` in short; `losses` (`row document cut position loss`).
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
    windows, documents = document_windows(lm, named, size, cuts * len(named) * size, "text")
    rows, tables, notes = [], [], []
    for place, turn in enumerate(turns):
        found = []
        for at, one in enumerate(chosen):
            context.progress((place + at / len(chosen)) / len(turns), f"{one.label}, {turn.setting}")
            found.append([follow(lm, one.method, torch.as_tensor(window), prefix, turn) for window in windows])
        for one, mine in zip(chosen, found, strict=True):
            tables.append(_table(len(rows), mine, documents))
            rows.append(_row(one, turn, mine, found[0], documents))
            notes += [f"{one.label} hid keys instead of dropping them: its cache holds every key."] * mine[0].masked
    about = {"prefix": prefix, "continuation": continuation, "cuts": len(windows), "question": question or None}
    about |= {"second": second or None, "texts": text_keys(named), "seed": seed, "window": size}
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
        return [Turn(PLAIN, [], [])]
    found = [Turn(UNKNOWN, [], first), Turn(KNOWN, first, [])]
    return [*found, Turn(SECOND, first, other)] if second else found


def _all(lm: Model, method: Method, windows: np.ndarray, prefix: int, turn: Turn) -> list[Followed]:
    """One method on every stretch of text."""
    return [follow(lm, method, torch.as_tensor(window), prefix, turn) for window in windows]


@torch.no_grad()
def follow(lm: Model, method: Method, window: Tensor, prefix: int, turn: Turn) -> Followed:
    """Read the first `prefix` tokens of `window` [T] and the known tokens as a prompt, then the others after it.

    The first token that is scored is predicted by the prompt's last, which still read all of it, where nothing is asked
    in between.
    """
    device = lm.lm.device
    known, asked = (torch.as_tensor(part, dtype=torch.long) for part in (turn.known, turn.asked))
    prompt, target = torch.cat([window[:prefix], known]).to(device), window[prefix:].to(device)
    after = torch.cat([asked.to(device), target])[:-1]
    with apply(lm, method, kernels=True):
        cache = method.cache(lm.lm) or GrowingCache(lm.lm.config)
        first = lm.lm(prompt[None], past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        held, keys = cache_bytes(cache)[0], keys_held(cache)
        masked = any(isinstance(layer, CompactLayer) and not layer.is_compact for layer in cache.layers)
        rest = lm.lm(after[None], past_key_values=cache, use_cache=True).logits
    logits = torch.cat([first[:, -1:], rest], 1)[0, len(asked) :]
    losses = F.cross_entropy(logits.float(), target, reduction="none")
    return Followed(losses.double().cpu().numpy(), held, keys, masked)


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
    change, plain = perplexity_change(losses, baseline, documents), perplexity_of(losses, documents)
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
        "perplexity": plain.change,
        "difference": change.change,
        "low": change.low,
        "high": change.high,
        "units": change.units,
        "unit": change.unit,
    }


def _sentence(rows: list[dict]) -> str:
    """The gentlest and the harshest row, in words."""
    others = [row for row in rows if row["method"] != "dense"]
    if not others:
        return f"Dense attention predicts what follows with a perplexity of {rows[0]['perplexity']:.2f}."
    best, worst = (pick(others, key=lambda row: row["difference"]) for pick in (min, max))
    said = (
        "{label} ({setting}): {difference:+.1%} perplexity on what follows, {kv_share:.0%} of dense attention's cache"
    )
    told = [said.format(**row) for row in ([best] if best is worst else [best, worst])]
    return "; ".join(told).replace("-", "−") + "."
