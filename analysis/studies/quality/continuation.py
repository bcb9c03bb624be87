"""What follows a prompt whose KV cache was compressed once, or whose blocks were read in part: loss, keys and bytes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...claims import signed
from ...errors import BadSetting
from ...methods import METHODS
from ...metrics.paired import perplexity_change, perplexity_of
from ...models import Model
from ..context import Context, check_seed, protocol
from ..ready.candidates import FAMILIES, Candidate, Setting, candidates
from ..text.calibration import document_windows, text_keys
from ..text.compared import Difference, columns
from ..text.held_out import check_range
from .at_share import at_budget
from .following import NOTHING, Followed, Turn, follow

MISSED = 0.1  # of a budget: a method farther from it is named in the notes
MAX_CUTS, MAX_METHODS = 64, 64  # cuts of a text; methods and ratios
UNKNOWN, KNOWN, SECOND = "question unknown", "question known", "second question"
COLUMNS = (
    "label ratio setting kept_keys kv_bytes kv_share kv_most_bytes blocks perplexity difference low high units".split()
)
KERNEL = "each method's own kernel where it has one"


@record
class Continued(Difference, Setting):
    """What follows the prompts under one method in one setting of the question."""

    setting: str = doc("whether the compression saw the question")
    ratio: float | None = doc("share of the keys that is removed, where the method has a ratio")
    kept_keys: float = doc("keys per layer and key-value head after the prompt")
    kv_bytes: int = doc("bytes really held after the prompt")
    kv_share: float = doc("the same as a share of dense attention's")
    kv_most_bytes: int = doc("bytes held at once until then: a layer drops its keys before the next one is read")
    blocks: float | None = doc("share of the prompt's blocks that was read, of methods that read by blocks")
    perplexity: float = doc("of the continuation")


@record
class Continuation(Worded):
    """What follows a prompt under methods that compress its KV cache or read it in part."""

    rows: list[Continued] = doc("one per method and setting, dense first in every setting")
    summary: pd.DataFrame = doc("the rows in short", name="rows")
    losses: pd.DataFrame = doc("nats per predicted token, by row, document, cut and position")


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
) -> Continuation:
    """Read `prefix` tokens of each text (hashes) under each of `methods`, then score the `continuation` tokens after.

    Methods that save memory compress the KV cache once, after the prefix; those that save prefill time read its blocks;
    all methods that save memory unless given. Of each text up to `cuts` stretches are taken, evenly spaced; the longest
    prefix that the model's context allows unless given. `ratios`: shares of the keys to remove, one row each, of
    methods that have a ratio. `share`: every method set so that it keeps this share of the KV cache, or reads this
    share of the prompt's blocks, in the first stretch. With a `question`, a text that stands between prefix and
    continuation, there are two settings: *unknown*, the compression sees the prefix only, and *known*, it sees the
    question too; with a `second` question that one is read through the cache that was compressed for the first.
    Errors: BadSetting, BadText.
    """
    check_seed(seed)
    check_range("The number of cuts", cuts, 1, MAX_CUTS)
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
    windows, documents = context.once(
        "stretches", belongs, lambda: document_windows(lm, named, size, cuts * len(named) * size, "text")
    )
    if share is not None:
        check_range("The share", share, 0.01, 1.0)
        at_share = at_budget(context, lm, torch.as_tensor(windows[0]), prefix, share)
        chosen = [candidate if candidate.name == "dense" else at_share(candidate) for candidate in chosen]

    def read(candidate: Candidate, turn: Turn) -> list[Followed]:
        return [follow(lm, candidate.method, torch.as_tensor(window), prefix, turn) for window in windows]

    rows, tables, notes = [], [], []
    for place, turn in enumerate(turns):
        # Dense attention comes first and is kept, so that a slider's move costs one pass of one method.
        dense: list[Followed] = []
        for index, candidate in enumerate(chosen):
            context.progress((place + index / len(chosen)) / len(turns), f"{candidate.label}, {turn.setting}")
            if candidate.method.dense:
                kept_as = f"after {turn.setting}"
                stretches = context.once(kept_as, (*belongs, turn), lambda c=candidate, t=turn: read(c, t))
            else:
                stretches = read(candidate, turn)
            dense = dense or stretches
            tables.append(_table(len(rows), stretches, documents))
            rows.append(_row(candidate, turn, stretches, dense, documents))
            notes += _missed(rows[-1], share)
            if stretches[0].masked:
                notes.append(f"{candidate.label} hid keys instead of dropping them: its cache holds every key.")
    about = {"prefix": prefix, "continuation": continuation, "cuts": len(windows), "question": question or None}
    about |= {"share": share, "second": second or None, "texts": text_keys(named), "seed": seed, "window": size}
    return Continuation(
        rows=rows,
        sentence=_sentence(rows),
        notes=list(dict.fromkeys(notes)),
        summary=pd.DataFrame([vars(row) for row in rows])[COLUMNS],
        losses=pd.concat(tables, ignore_index=True),
        protocol=protocol("continuation", lm, (texts or [None])[0], int(windows.size), **about, kernel=KERNEL),
    )


def _chosen(context: Context, lm: Model, methods: list[dict] | None, ratios: list[float] | None) -> list[Candidate]:
    """Dense first, then the methods asked for, once for each ratio where they have one. Errors: BadSetting."""
    if methods is None:
        methods = [{"name": candidate.name} for candidate in candidates(context, lm, None, ("memory",))]
    specs: list[dict] = [{"name": "dense"}]
    for spec in methods:
        if ratios and "ratio" in getattr(METHODS.get(spec.get("name")), "__dataclass_fields__", ()):
            specs += [spec | {"settings": {**(spec.get("settings") or {}), "ratio": ratio}} for ratio in ratios]
        elif spec.get("name") != "dense":
            specs.append(spec)
    if len(specs) > MAX_METHODS:
        raise BadSetting(f"{len(specs):,} methods and ratios were asked for: choose at most {MAX_METHODS}.")
    # One by one: the same method may stand there several times, at several ratios.
    return [candidates(context, lm, [spec], FAMILIES)[0] for spec in specs]


def _turns(lm: Model, question: str, second: str) -> list[Turn]:
    """The settings that are compared."""
    if not question:
        return [NOTHING]
    first_ids, second_ids = (lm.tokenizer(words, add_special_tokens=False)["input_ids"] for words in (question, second))
    turns = [Turn(UNKNOWN, [], first_ids), Turn(KNOWN, first_ids, [])]
    return [*turns, Turn(SECOND, first_ids, second_ids)] if second else turns


def _table(row: int, stretches: Sequence[Followed], documents: np.ndarray) -> pd.DataFrame:
    parts = []
    for cut, (stretch, document) in enumerate(zip(stretches, documents, strict=True)):
        columns = {"row": row, "document": document, "cut": cut, "position": np.arange(len(stretch.losses))}
        parts.append(pd.DataFrame(columns | {"loss": stretch.losses}))
    return pd.concat(parts, ignore_index=True)


def _row(
    candidate: Candidate, turn: Turn, stretches: list[Followed], dense: list[Followed], documents: np.ndarray
) -> Continued:
    losses, baseline = (np.stack([stretch.losses for stretch in side]) for side in (stretches, dense))
    units = documents if len(set(documents.tolist())) > 1 else None  # of one text its stretches are the units

    def mean(name: str, side: list[Followed] = stretches) -> float:
        return float(np.mean([getattr(stretch, name) for stretch in side]))

    return Continued(
        **candidate.setting,
        setting=turn.setting,
        ratio=candidate.settings.get("ratio"),
        kept_keys=mean("keys"),
        kv_bytes=round(mean("kv_bytes")),
        kv_share=mean("kv_bytes") / mean("kv_bytes", dense),
        kv_most_bytes=round(mean("kv_most")),
        blocks=None if stretches[0].blocks is None else mean("blocks"),
        perplexity=perplexity_of(losses, units).change,
        **columns(Difference, perplexity_change(losses, baseline, units)),
    )


def _missed(row: Continued, share: float | None) -> list[str]:
    """A note where a method comes nowhere near the share that was asked for."""
    reached, does = (row.kv_share, "keeps") if row.blocks is None else (row.blocks, "reads")
    if share is None or row.method == "dense" or abs(reached / share - 1) <= MISSED:
        return []
    return [f"{row.label} {does} {reached:.0%}: none of its settings comes nearer to {share:.0%} of this prompt."]


def _sentence(rows: list[Continued]) -> str:
    """The gentlest and the harshest row, in words."""
    sparse = sorted((row for row in rows if row.method != "dense"), key=lambda row: row.difference)
    if not sparse:
        return f"Dense attention predicts what follows with a perplexity of {rows[0].perplexity:.2f}."
    ends = [sparse[0]] if len(sparse) == 1 else [sparse[0], sparse[-1]]
    parts = [
        f"{row.label} ({row.setting}): {signed(row.difference, '.1%')} perplexity on what follows, "
        f"{row.kv_share:.0%} of dense attention's cache"
        for row in ends
    ]
    return "; ".join(parts) + "."
