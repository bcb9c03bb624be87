"""Scoring a text under methods: whole windows, the dense pass that all are compared with, and each token's losses."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
import torch.nn.functional as F

from ...corpus import MAX_WINDOWS, tokenize
from ...errors import BadSetting, BadText
from ...methods import METHODS
from ...methods.base import Method
from ...metrics.quality import divergence, same_top1, token_losses
from ...metrics.sparsity import ReadCounter, Reads
from ...models import Model
from ...seam.attention import Block, apply
from ..context import Context, Reading

# Dense logits are kept between calls up to this size, so that moving a slider costs one pass of one method.
KEPT_BYTES = 256 << 20
# Logits are compared in blocks of this many float32 bytes: larger ones leave the processor's caches and take longer.
BLOCK_BYTES = 4 << 20
# On the command line.
UNLIMITED_WINDOWS = 1 << 20


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
    logits: list[torch.Tensor] | None  # [T - 1, V] per window; None beyond KEPT_BYTES


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
        reference = dense.logits[index] if dense.logits else _logits(model, METHODS["dense"](), window)
        for number, (label, method) in enumerate(sparse.items()):
            done = part + (1 - part) * (index + number / len(sparse)) / len(ids)
            context.progress(done, f"{label}, window {index + 1} of {len(ids)}")
            logits = _logits(model, method, window, counters[label], indexer)
            compared[label].append(compare(reference, logits, window[1:].to(logits.device)))
    scored = dict.fromkeys(methods, dense.scored)
    for label, method in sparse.items():
        losses, kl, same = map(np.stack, zip(*compared[label], strict=True))
        scored[label] = Scored(losses, kl, same, counters[label].reads(method))
    return dense.scored, scored


class Progress:
    """Reports passes over windows, before each, while no method is on the model."""

    def __init__(self, context: Context, span: tuple[float, float], passes: int) -> None:
        self.context, self.span, self.passes, self.done = context, span, passes, 0

    def __call__(self, stage: str) -> None:
        """Report `stage`, a pass that begins now."""
        low, high = self.span
        self.context.progress(min(high, low + (high - low) * self.done / self.passes), stage)
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


def score_window(model: Model, method: Method, ids: torch.Tensor) -> tuple[np.ndarray, Reads]:
    """Losses [T - 1] in nats of one window of tokens [T] under a method, and what it read there."""
    counter = ReadCounter(len(ids))
    logits = _logits(model, method, ids, counter)
    return _losses(logits, ids[1:].to(logits.device)), counter.reads(method)


def _dense(context: Context, model: Model, text: str, ids: torch.Tensor, part: float) -> Dense:
    """The dense pass, through the same path as the methods: equal reading gives equal numbers, bit for bit."""

    def measure() -> Dense:
        method, counter = METHODS["dense"](), ReadCounter(ids.shape[1])
        vocabulary = model.lm.config.get_text_config().vocab_size
        keep = ids.numel() * vocabulary * model.dtype.itemsize <= KEPT_BYTES
        kept_logits, losses = [], []
        for index, window in enumerate(ids):
            context.progress(part * index / len(ids), f"dense, window {index + 1} of {len(ids)}")
            logits = _logits(model, method, window, counter)
            losses.append(_losses(logits, window[1:].to(logits.device)))
            if keep:
                kept_logits.append(logits)
        stacked = np.stack(losses)
        agree = np.ones(stacked.shape, dtype=bool)
        return Dense(Scored(stacked, np.zeros_like(stacked), agree, counter.reads(method)), kept_logits or None)

    return context.once("dense", (model.name, model.revision, str(model.device), text, tuple(ids.shape)), measure)


@torch.no_grad()
def _logits(
    model: Model,
    method: Method,
    ids: torch.Tensor,
    watch: Callable[[Block, torch.Tensor], None] | None = None,
    indexer: bool = True,
) -> torch.Tensor:
    """Logits [T - 1, V] of one window of tokens [T] under a method."""
    # A watch, even an idle one, keeps the pass on masked blocks, so that dense and sparse share their arithmetic.
    with apply(model, method, watch=watch or (lambda block, probabilities: None), indexer=indexer):
        return model.lm(ids[None].to(model.device), use_cache=False).logits[0, :-1]


def compare(reference: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> tuple[np.ndarray, ...]:
    """(losses, KL from the reference, same most likely token) of logits [n, V] against the reference's, targets [n]."""
    blocks = list(zip(_blocks(reference), _blocks(logits), strict=True))
    kl = torch.cat([divergence(a, b) for a, b in blocks])
    agree = torch.cat([same_top1(a, b) for a, b in blocks])
    return _losses(logits, targets), kl.cpu().numpy(), agree.cpu().numpy()


def _losses(logits: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
    blocks = _blocks(logits)
    parts = zip(blocks, targets.split(len(blocks[0])), strict=True)
    losses = torch.cat([F.cross_entropy(block.float(), target, reduction="none") for block, target in parts])
    return losses.double().cpu().numpy()


def _blocks(logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Logits [n, V] in runs of positions that are compared at once."""
    return logits.split(max(1, BLOCK_BYTES // (4 * logits.shape[-1])))
