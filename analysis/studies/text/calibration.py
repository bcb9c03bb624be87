"""Texts for a calibration: whole windows of several texts, and two parts that share nothing, one to calibrate on and
one to be measured on.
"""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...corpus import Tokens, text_hash, tokenize
from ...errors import BadSetting, BadText
from ...models import Model
from ...runs.brought import corpus_folder
from ..context import Context
from .held_out import check_range, texts_of

# Windows of one text.
MANY = 1 << 20
# Characters that surely hold a token.
PIECE = 24


@dataclass(frozen=True)
class Split:
    """Texts, as (name, text), on two sides that share nothing."""

    calibrate: list[tuple[str, str]]
    measure: list[tuple[str, str]]
    # One text gave both.
    halved: bool = False

    @property
    def words(self) -> str:
        """How the texts are kept apart, in words."""
        if self.halved:
            return f"calibrated on the first half of {self.calibrate[0][0]}, measured on the second"
        calibrating, measuring = (f"{len(side)} text{'s' * (len(side) > 1)}" for side in (self.calibrate, self.measure))
        return f"calibrated on {calibrating}, measured on {measuring}"


def split_texts(context: Context, texts: list[str], against: list[str] | None) -> Split:
    """Stored texts by their hashes, split: `against` measures if it is given; else the later half of several documents,
    or the second half of a single one. Errors: BadSetting for a text on both sides, or given twice.
    """
    if not texts:
        raise BadSetting("A calibration needs at least one text: name one.")
    stored = [context.text(key) for key in texts]
    if against:
        split = Split(stored, [context.text(key) for key in against])
    elif len(stored) > 1:
        half = -(-len(stored) // 2)
        split = Split(stored[:half], stored[half:])
    else:
        name = stored[0][0]
        first, second = halves(stored[0][1])
        return Split([(name, first)], [(name, second)], True)
    for (name, text), (inner_name, inner) in itertools.product(split.measure, split.calibrate):
        if text.strip() in inner or inner.strip() in text:
            both = name if name == inner_name else f"{inner_name} and {name}"
            raise BadSetting(
                f"{both} would both calibrate and measure, and a policy must not be measured on what it was calibrated "
                "on: give another text."
            )
    return split


def split_corpus(context: Context, corpus: str, texts: list[str]) -> Split:
    """The documents of a folder, those for training calibrating and the held-out ones measuring; in a browser the
    folder is one of the configured root. Errors: BadSetting, BadText."""
    if texts:
        raise BadSetting("Texts and a corpus were both named: give one of them.")
    folder = corpus_folder(context.store, corpus) if context.browser else Path(corpus)
    sides = texts_of(folder, context)
    names = f"{folder.name}", f"held-out {folder.name}"
    train, held_out = (
        [(f"{name} {number}", text) for number, text in enumerate(side, 1)]
        for name, side in zip(names, sides, strict=True)
    )
    return Split(train, held_out)


def split(train: list[str], held_out: list[str]) -> tuple[list[tuple[str, str]], ...]:
    """Documents that calibrate, that select and that report, as (name, text); none is in two. Of a single training
    document the first half calibrates and the second selects."""
    first, second = (train[::2], train[1::2]) if len(train) > 1 else ([half] for half in halves(train[0]))
    sides = {"calibration text": first, "selection text": second, "held-out text": held_out}
    return tuple([(name, text) for text in side] for name, side in sides.items())


def halves(text: str) -> tuple[str, str]:
    """A text cut in two at the white space that follows its middle."""
    space = re.compile(r"\s").search(text, len(text) // 2)
    cut = space.start() if space else len(text) // 2
    return text[:cut], text[cut:]


def whole_windows(model: Model, texts: list[tuple[str, str]], window: int | None, tokens: int) -> np.ndarray:
    """The windows of `document_windows` alone."""
    return document_windows(model, texts, window, tokens)[0]


def document_windows(
    model: Model, texts: list[tuple[str, str]], window: int | None, tokens: int, role: str = "calibration text"
) -> tuple[np.ndarray, np.ndarray]:
    """Whole windows of texts, int64 [n, T], evenly spaced over all of them and together at most `tokens` tokens (but
    one window at least); each lies in one text and begins as the model's texts begin. And which text each is of [n].

    Without `window` as long as `longest_window`. Errors: BadSetting, BadText for no window.
    """
    check_range("A window of text", window, 8, model.max_positions)
    check_range("The number of tokens", tokens, 8, 1 << 24)
    size = window or longest_window(model, texts)
    count = max(1, tokens // max(size, 1))
    candidates: list[tuple[np.ndarray, int]] = []
    first = _evenly(len(texts), count)
    for chosen, per_text in ((first, -(-count // max(1, len(first)))), (range(len(texts)), count)):
        # Again from all texts where the chosen ones are too short.
        if size >= 8 and len(candidates) < count:
            candidates = [
                (window, place) for place in chosen for window in _windows(model, texts[place][1], size, per_text)
            ]
    if not candidates:
        have = sum(begun.total for begun in _begun(model, texts))
        raise BadText(
            f"The {role} has {have:,} tokens and one window needs {window or 8:,}: give a longer text or a shorter "
            "window."
        )
    windows, documents = zip(*(candidates[place] for place in _evenly(len(candidates), count)), strict=True)
    return np.stack(windows).astype(np.int64), np.array(documents)


def reporting(windows: int, length: int, size: int, texts: int) -> int:
    """Tokens of the windows of `size` tokens that measure: as many as `windows` of `length` have together, or more, so
    that as many `texts` give one each: a longer context is no reason for an interval over fewer documents."""
    return size * max(1, windows * length // size, min(windows, texts))


def longest_window(model: Model, texts: list[tuple[str, str]]) -> int:
    """Tokens of the longest text, as many as the model reads at once."""
    return max((b - a for begun in _begun(model, texts) for a, b in begun.spans), default=0)


def _begun(model: Model, texts: list[tuple[str, str]]) -> list[Tokens]:
    """The first window of every text that has one."""
    limit = model.max_positions
    return list(filter(None, (_tokens(model, text[: PIECE * limit], limit, 1) for _, text in texts)))


def _windows(model: Model, text: str, size: int, count: int) -> list[np.ndarray]:
    """At most `count` whole windows of a text, evenly spaced."""
    if len(text) <= PIECE * size * count:
        coded = _tokens(model, text, size, MANY)
        windows = [coded.ids[a:b] for a, b in coded.spans if b - a == size] if coded else []
        return [windows[place] for place in _evenly(len(windows), count)]
    # Tokenising a whole book for a few windows takes longer than reading them: only pieces of it are tokenised.
    windows = []
    for part in range(count):
        begin = len(text) * part // count
        space = re.compile(r"\s").search(text, begin) if begin else None
        begin = space.start() if space else begin
        coded = _tokens(model, text[begin : begin + PIECE * size], size, 1)
        windows += [coded.ids] if coded and len(coded) == size else []
    return windows


def _evenly(count: int, wanted: int) -> list[int]:
    """At most `wanted` of `count` places, from the first to the last."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(int)).tolist() if count else []


def _tokens(model: Model, text: str, window: int, limit: int) -> Tokens | None:
    try:
        return tokenize(model.tokenizer, text, window, limit)
    # Too short for attention: it gives no window.
    except BadText:
        return None


def text_keys(texts: list[tuple[str, str]]) -> list[str]:
    """The hashes of texts."""
    return [text_hash(text) for _, text in texts]
