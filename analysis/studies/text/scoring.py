"""Scoring a text under methods: whole windows, the dense pass that all are compared with, and each token's losses."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from analysis.corpus import MAX_WINDOWS, Tokens, tokenize
from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.quality import divergence, same_top1
from analysis.metrics.sparsity import ReadCounter, Reads
from analysis.models import Model
from analysis.seam.attention import Block, apply
from analysis.studies.context import Context, Reading

KEPT_BYTES = 256 << 20  # of dense logits, so that a slider's move costs one pass of one method
SPREAD = 4 << 20  # bytes of logits that are compared at once, spread out in float32: they stay in the caches
MANY = 1 << 20  # windows of a text from the command line


@dataclass(frozen=True)
class Scored:
    """What one method did to a text, per target token [windows, positions]: `losses` in nats, `kl` from dense in nats,
    `same` whether its most likely token is dense's; and what it read."""

    losses: np.ndarray
    kl: np.ndarray
    same: np.ndarray
    reads: Reads


@dataclass(frozen=True)
class Dense:
    """The dense pass: its own scores, and its logits per window [T - 1, V] where they fit into KEPT_BYTES."""

    scored: Scored
    logits: list[torch.Tensor] | None


def whole_windows(context: Context, model: Model, key: str, window: int | None, long_text: str) -> Reading:
    """A text in windows of exactly `window` tokens, what remains left out; its notes say what is scored.

    Without `window`, as few windows as the model's context allows, of equal length, so that hardly anything remains.
    `first` takes one window, a shorter one of a shorter text. The last reading stays in `context.kept`.
    Errors: BadSetting for a window the model cannot read, BadText for a text shorter than one window.
    """
    belongs = (model.name, model.revision, key, window, long_text)
    return context.once("reading", belongs, lambda: _whole_windows(context, model, key, window, long_text))


def _whole_windows(context: Context, model: Model, key: str, window: int | None, long_text: str) -> Reading:
    if long_text not in ("windows", "first"):
        raise BadSetting(f"long_text is {long_text!r} and must be 'windows' or 'first'.")
    most = 1 if long_text == "first" else MAX_WINDOWS if context.browser else MANY
    if window is not None and not 2 <= window <= model.max_positions:
        raise BadSetting(
            f"A window of {window:,} tokens was asked for and {model.name} reads 2 to {model.max_positions:,} at once."
        )
    name, text = context.text(key)
    tokens = tokenize(model.tokenizer, text, window or model.max_positions, most)
    if long_text == "first":
        window = len(tokens)  # all of a text that is shorter
    elif window is None:
        begin, count = tokens.begin, len(tokens.spans)
        room = model.max_positions - begin
        window = begin + (tokens.shown // count if tokens.shown == tokens.total else room)
        tokens = tokenize(model.tokenizer, text, window, count)
    count = len(tokens) // window
    if count == 0:
        raise BadText(
            f"The text has {len(tokens):,} tokens and one window needs {window:,}: give a longer text or a shorter "
            "window."
        )
    kept = _first(tokens, count * window)
    said = []
    if count > 1:
        said.append(f"{count:,} windows of {window:,} tokens are scored, and no attention crosses a window's edge.")
    if kept.shown < tokens.total:
        said.append(f"The first {kept.shown:,} of the text's {tokens.total:,} tokens are scored.")
    return Reading(name, text, kept, said)


def _first(tokens: Tokens, count: int) -> Tokens:
    """The first `count` tokens."""
    cut = {f.name: getattr(tokens, f.name) for f in dataclasses.fields(tokens)}
    return Tokens(**{name: value if isinstance(value, int) else value[:count] for name, value in cut.items()})


def score(
    context: Context, model: Model, text: str, reading: Reading, methods: dict[str, Method]
) -> tuple[Scored, dict[str, Scored]]:
    """Dense attention and each of `methods` (label -> method) on the windows of a text, window by window.

    The dense pass of the last text stays in `context.kept`. `context.progress` is called between passes.
    """
    ids = torch.as_tensor(np.stack(reading.windows)).long()  # [windows, T]
    others = {label: method for label, method in methods.items() if not method.dense}
    part = 1 / (1 + len(others))
    dense = _dense(context, model, text, ids, part)
    rows = {label: [] for label in others}
    counters = {label: ReadCounter(ids.shape[1]) for label in others}
    for at, window in enumerate(ids if others else []):
        reference = dense.logits[at] if dense.logits else _logits(model, METHODS["dense"](), window)
        for number, (label, method) in enumerate(others.items()):
            done = part + (1 - part) * (at + number / len(others)) / len(ids)
            context.progress(done, f"{label}, window {at + 1} of {len(ids)}")
            logits = _logits(model, method, window, counters[label])
            rows[label].append(compare(reference, logits, window[1:].to(logits.device)))
    found = {label: dense.scored for label in methods}
    for label, method in others.items():
        columns = zip(*rows[label], strict=True)
        found[label] = Scored(*map(np.stack, columns), reads=counters[label].reads(method))
    return dense.scored, found


def score_window(model: Model, method: Method, ids: torch.Tensor) -> tuple[np.ndarray, Reads]:
    """Losses [T - 1] in nats of one window of tokens [T] under a method, and what it read there."""
    counter = ReadCounter(len(ids))
    logits = _logits(model, method, ids, counter)
    return _losses(logits, ids[1:].to(logits.device)), counter.reads(method)


def _dense(context: Context, model: Model, text: str, ids: torch.Tensor, part: float) -> Dense:
    """The dense pass, through the same path as the methods: equal reading gives equal numbers, bit for bit."""
    belongs = (model.name, model.revision, str(model.device), text, tuple(ids.shape))
    if context.kept.get("dense", (None,))[0] == belongs:
        return context.kept["dense"][1]
    method, counter = METHODS["dense"](), ReadCounter(ids.shape[1])
    vocabulary = model.lm.config.get_text_config().vocab_size
    keep = ids.numel() * vocabulary * model.dtype.itemsize <= KEPT_BYTES
    logits, losses = [], []
    for at, window in enumerate(ids):
        context.progress(part * at / len(ids), f"dense, window {at + 1} of {len(ids)}")
        found = _logits(model, method, window, counter)
        losses.append(_losses(found, window[1:].to(found.device)))
        logits += [found] if keep else []
    losses = np.stack(losses)
    scored = Scored(losses, np.zeros_like(losses), np.ones(losses.shape, dtype=bool), counter.reads(method))
    context.kept["dense"] = belongs, Dense(scored, logits or None)
    return context.kept["dense"][1]


@torch.no_grad()
def _logits(
    model: Model, method: Method, ids: torch.Tensor, watch: Callable[[Block, torch.Tensor], None] | None = None
) -> torch.Tensor:
    """Logits [T - 1, V] of one window of tokens [T] under a method. The watch keeps it on the path of masked blocks."""
    with apply(model, method, watch=watch or (lambda block, probabilities: None)):
        return model.lm(ids[None].to(model.device), use_cache=False).logits[0, :-1]


def _losses(logits: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
    parts = zip(_rows(logits), targets.split(_count(logits)), strict=True)
    found = torch.cat([F.cross_entropy(row.float(), target, reduction="none") for row, target in parts])
    return found.double().cpu().numpy()


def compare(reference: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> tuple[np.ndarray, ...]:
    """(losses, KL from the reference, same most likely token) of logits [n, V] against the reference's, targets [n]."""
    rows = list(zip(_rows(reference), _rows(logits), strict=True))
    kl = torch.cat([divergence(a, b) for a, b in rows])
    same = torch.cat([same_top1(a, b) for a, b in rows])
    return _losses(logits, targets), kl.cpu().numpy(), same.cpu().numpy()


def _count(logits: torch.Tensor) -> int:
    """How many positions of logits [n, V] are compared at once."""
    return max(1, SPREAD // (4 * logits.shape[-1]))


def _rows(logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return logits.split(_count(logits))
