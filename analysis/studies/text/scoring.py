"""Scoring a text under methods: whole windows, the dense pass that all are compared with, and each token's losses; the
columns that rows of several studies share."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ...answer import doc, record
from ...corpus import MAX_WINDOWS, tokenize
from ...errors import BadSetting, BadText
from ...methods import METHODS
from ...methods.base import Method
from ...metrics.paired import Change
from ...metrics.quality import divergence, same_top1, token_losses
from ...metrics.sparsity import ReadCounter, Reads
from ...models import Model
from ...seam.attention import Block, apply
from ...seam.vocabulary import NextTokens, next_tokens
from ..context import Context, Reading

# What dense logits are made of is kept between calls up to this size, so that moving a slider costs one pass of one
# method.
KEPT_BYTES = 256 << 20
# Logits are compared in blocks of this many float32 bytes: larger ones leave the processor's caches and take longer.
BLOCK_BYTES = 4 << 20
# On the command line.
UNLIMITED_WINDOWS = 1 << 20


@record
class Difference:
    """Paired change of perplexity against dense attention, as a share of it: 0.02 is 2% worse."""

    difference: float = doc("paired change of perplexity against dense attention: 0.02 is 2% worse")
    low: float | None = doc("lower end of its 95% interval; null with too few units")
    high: float | None = doc("upper end of its 95% interval")
    units: int = doc("units of that interval")
    unit: str = doc("what such a unit is")


@record
class ReadShares:
    """What the queries read, over all layers and heads."""

    attended: float = doc("keys that a query reads on average")
    reads_causal: float = doc("share of the causal pairs that a query head reads")
    reads_kv: float = doc("share of the causal pairs that a key-value head reads")
    attended_kv: float = doc("keys that the queries of a key-value head read together on average")
    kv_read: float = doc("share of the key and value vectors that is fetched")
    sharing: float = doc("how many times more keys a key-value head reads than a query head")


def columns(kind: type, source: Any) -> dict[str, Any]:
    """The fields of a row's part `kind`, read off the attributes of what was measured."""
    change = {"difference": source.change} if isinstance(source, Change) else {}
    return change | {part.name: getattr(source, part.name) for part in fields(kind) if part.name not in change}


@dataclass(frozen=True)
class Scored:
    """Effect of one method on a text, per target token [windows, positions]."""

    # Nats.
    losses: np.ndarray
    # Divergence from dense attention, nats.
    kl: np.ndarray
    # Bool: its most likely token is that of dense attention.
    same: np.ndarray
    reads: Reads


@dataclass(frozen=True)
class Dense:
    """The dense pass over a text."""

    scored: Scored
    said: list[NextTokens] | None  # of each window; None beyond KEPT_BYTES


def whole_windows(context: Context, model: Model, key: str, window: int | None, long_text: str) -> Reading:
    """Cut a text into windows of exactly `window` tokens; what remains is left out, and the notes say so.

    Without `window`, the text is cut into as few windows of equal length as the model's context allows, so that hardly
    any token is lost. `first` takes one window, a shorter one of a shorter text. The last reading stays in
    `context.kept`. Errors: BadSetting for a window the model cannot read, BadText for a text shorter than one window.
    """
    belongs = (model.name, model.revision, key, window, long_text)
    return context.once("reading", belongs, lambda: _cut(context, model, key, window, long_text))


def _cut(context: Context, model: Model, key: str, window: int | None, long_text: str) -> Reading:
    if window is not None and not 2 <= window <= model.max_positions:
        raise BadSetting(
            f"A window of {window:,} tokens was asked for and {model.name} reads 2 to {model.max_positions:,} at once."
        )
    limit = {"first": 1, "windows": MAX_WINDOWS if context.browser else UNLIMITED_WINDOWS}[long_text]
    name, text = context.text(key)
    tokens = tokenize(model.tokenizer, text, window or model.max_positions, limit)
    if long_text == "first":
        # The whole of a text that is shorter than a window.
        window = len(tokens)
    elif window is None:
        # The first pass only counts: with the number of windows known, their equal length follows.
        count = len(tokens.spans)
        per_window = model.max_positions - tokens.begin
        if tokens.shown == tokens.total:
            per_window = tokens.shown // count
        window = tokens.begin + per_window
        tokens = tokenize(model.tokenizer, text, window, count)
    count = len(tokens) // window
    if count == 0:
        raise BadText(
            f"The text has {len(tokens):,} tokens and one window needs {window:,}: give a longer text or a shorter "
            "window."
        )
    columns = {column.name: getattr(tokens, column.name) for column in fields(tokens)}
    lists = {name: v[: count * window] for name, v in columns.items() if not isinstance(v, int)}
    scored, notes = replace(tokens, **lists), []
    if count > 1:
        notes.append(f"{count:,} windows of {window:,} tokens are scored, and no attention crosses a window's edge.")
    if scored.shown < tokens.total:
        notes.append(f"The first {scored.shown:,} of the text's {tokens.total:,} tokens are scored.")
    return Reading(name, text, scored, notes)


def score(
    context: Context, model: Model, text: str, reading: Reading, methods: dict[str, Method], indexer: bool = True
) -> tuple[Scored, dict[str, Scored]]:
    """Dense attention and each of `methods` (label -> method) on the windows of a text, window by window. Without
    `indexer` the methods choose in place of the model's own one, which dense attention keeps.

    The dense pass of the last text stays in `context.kept`. `context.progress` is called between passes.
    """
    ids = torch.as_tensor(np.stack(reading.windows)).long()  # [windows, T]
    sparse = {label: method for label, method in methods.items() if not method.dense}
    part = 1 / (1 + len(sparse))
    dense = _dense(context, model, text, ids, part)
    compared: dict[str, list] = {label: [] for label in sparse}
    counters = {label: ReadCounter(ids.shape[1]) for label in sparse}
    for index, window in enumerate(ids if sparse else []):
        reference = dense.said[index] if dense.said else _said(model, METHODS["dense"](), window)
        for number, (label, method) in enumerate(sparse.items()):
            done = part + (1 - part) * (index + number / len(sparse)) / len(ids)
            context.progress(done, f"{label}, window {index + 1} of {len(ids)}")
            said = _said(model, method, window, counters[label], indexer)
            compared[label].append(compare(model, reference, said, window[1:].to(model.device)))
    scored = dict.fromkeys(methods, dense.scored)
    for label, method in sparse.items():
        losses, kl, same = map(np.stack, zip(*compared[label], strict=True))
        scored[label] = Scored(losses, kl, same, counters[label].reads(method))
    return dense.scored, scored


class Progress:
    """Reports passes over windows, before each, while no method is on the model."""

    def __init__(self, context: Context, passes: int) -> None:
        self.context, self.passes, self.done = context, passes, 0

    def __call__(self, stage: str) -> None:
        """Report `stage`, a pass that begins now."""
        self.context.progress(min(1.0, self.done / self.passes), stage)
        self.done += 1


def window_losses(
    model: Model, windows: np.ndarray, method: Method, progress: Callable[[str], None], name: str
) -> np.ndarray:
    """Nats per predicted token of windows of token ids [n, T], by the method's own kernel: float64 [n, T - 1]."""
    rows = []
    for index, ids in enumerate(windows):
        progress(f"{name}, window {index + 1} of {len(windows)}")
        with apply(model, method, kernels=True):
            rows.append(token_losses(model, torch.as_tensor(ids).long()[None])[0])
    return np.stack(rows).astype(np.float64)


@torch.no_grad()
def score_window(model: Model, method: Method, ids: torch.Tensor) -> tuple[np.ndarray, Reads]:
    """Losses [T - 1] in nats of one window of tokens [T] under a method, and what it read there."""
    counter = ReadCounter(len(ids))
    losses = _said(model, method, ids, counter).losses(model.lm, ids[None, 1:])
    return losses[0].double().cpu().numpy(), counter.reads(method)


def against_dense(model: Model, method: Method, ids: torch.Tensor) -> tuple[np.ndarray, ...]:
    """What `compare` gives, [T - 1] each, of one window of tokens [T] under a method against dense attention."""
    reference, said = (_said(model, each, ids) for each in (METHODS["dense"](), method))
    return compare(model, reference, said, ids[1:].to(model.device))


def _dense(context: Context, model: Model, text: str, ids: torch.Tensor, part: float) -> Dense:
    """The dense pass, through the same path as the methods: equal reading gives equal numbers, bit for bit."""

    @torch.no_grad()
    def measure() -> Dense:
        method, counter = METHODS["dense"](), ReadCounter(ids.shape[1])
        keep = ids.numel() * model.width * model.dtype.itemsize <= KEPT_BYTES
        kept, losses = [], []
        for index, window in enumerate(ids):
            context.progress(part * index / len(ids), f"dense, window {index + 1} of {len(ids)}")
            said = _said(model, method, window, counter)
            losses.append(said.losses(model.lm, window[None, 1:])[0].double().cpu().numpy())
            if keep:
                kept.append(said)
        stacked = np.stack(losses)
        agree = np.ones(stacked.shape, dtype=bool)
        return Dense(Scored(stacked, np.zeros_like(stacked), agree, counter.reads(method)), kept or None)

    return context.once("dense", (model.name, model.revision, str(model.device), text, tuple(ids.shape)), measure)


@torch.no_grad()
def _said(
    model: Model,
    method: Method,
    ids: torch.Tensor,
    watch: Callable[[Block, torch.Tensor], None] | None = None,
    indexer: bool = True,
) -> NextTokens:
    """What a method lets the model say in one window of tokens [T]."""
    # A watch, even an idle one, keeps the pass on masked blocks, so that dense and sparse share their arithmetic.
    with apply(model, method, watch=watch or (lambda block, probabilities: None), indexer=indexer):
        return next_tokens(model.lm, ids[None].to(model.device))


@torch.no_grad()
def compare(model: Model, reference: NextTokens, said: NextTokens, targets: torch.Tensor) -> tuple[np.ndarray, ...]:
    """(losses, KL from the reference, same most likely token), [n] each, of the first n places, which `targets` [n]
    follow."""
    # Made before the logits: small tensors between them would pin the heap, and it would grow with the text.
    kinds = torch.float64, torch.promote_types(model.dtype, torch.float32), torch.bool
    losses, kl, same = (torch.empty(len(targets), dtype=kind, device=targets.device) for kind in kinds)
    for (rows, theirs), (_, logits) in zip(reference.chunks(model.lm), said.chunks(model.lm), strict=True):
        wanted = targets[rows]
        pair = theirs[0, : len(wanted)], logits[0, : len(wanted)]
        size = max(1, BLOCK_BYTES // (4 * logits.shape[-1]))
        outs = (values[rows].split(size) for values in (losses, kl, same))
        blocks = zip(*(values.split(size) for values in (*pair, wanted)), *outs, strict=True)
        for a, b, target, of_losses, of_kl, of_same in blocks:
            of_losses.copy_(F.cross_entropy(b.float(), target, reduction="none"))
            of_kl.copy_(divergence(a, b))
            of_same.copy_(same_top1(a, b))
    return tuple(values.cpu().numpy() for values in (losses, kl, same))
