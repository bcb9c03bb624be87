"""Queries and keys of a text for the live views of single heads: computed once, kept for the next call."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from ...commands.heads import Head, HeadTokens, Why
from ...commands.temperature import Temperature
from ...errors import BadSetting
from ...models import Model
from ...runs.memory import STATES_BYTES
from ...statistics.inputs import check_head
from ...statistics.states import BLOCK_BYTES, States, attention_states, state_bytes
from ..context import Context, Reading, read
from .text import token_table

# Tokens back from which on a key is far away, unless said otherwise.
FAR = 128


@dataclass(frozen=True)
class HeadWindow:
    """One head and the window of a text that it is asked about."""

    lm: Model
    reading: Reading
    # Queries and keys of its layer.
    states: States
    # First token of the window in the text.
    offset: int
    # Its token ids.
    ids: np.ndarray
    # Those of all layers by their number where they fit, else of its own alone.
    by_layer: dict[int, States]
    # `token_table` of the text.
    words: pd.DataFrame


def heads_named(lm: Model, heads: str) -> list[tuple[int, int]]:
    """(layer, head) of a list such as 3.6,2.1, each once. Errors: BadSetting."""
    cells = []
    for word in heads.split(","):
        layer, _, head = word.strip().partition(".")
        if not (layer.isdecimal() and head.isdecimal()):
            raise BadSetting(f"{word[:20]!r} names no head: write all, or list them as layer.head, such as 3.6,2.1.")
        check_head(lm, int(layer), int(head))
        cells.append((int(layer), int(head)))
    return list(dict.fromkeys(cells))


def head_window(request: Head | HeadTokens | Temperature | Why, context: Context) -> HeadWindow:
    """What a request about one head looks at. Errors: BadSetting."""
    lm = context.model(request.model)
    check_head(lm, request.layer, request.head)
    reading = read(context, lm, request.text, request.long_text)
    offset, ids = window_of(reading, request.part)
    states = states_of(context, lm, ids, request.layer)
    return HeadWindow(lm, reading, states[request.layer], offset, ids, states, token_table(reading))


def query_blocks(length: int, values: int = BLOCK_BYTES // 4) -> Iterator[tuple[int, int]]:
    """(first query, past the last) of runs of queries whose scores over `length` keys are `values` numbers at most."""
    size = max(1, values // length)
    for start in range(0, length, size):
        yield start, min(start + size, length)


def window_of(reading: Reading, part: int) -> tuple[int, np.ndarray]:
    """(first token, token ids) of window `part` of a text. Errors: BadSetting."""
    spans = reading.tokens.spans
    if not 0 <= part < len(spans):
        raise BadSetting(f"The text has {len(spans)} windows, counted from 0, and window {part} was asked for.")
    return spans[part][0], reading.windows[part]


def windows_of(reading: Reading, part: int | None, fewest: int) -> list[tuple[int, np.ndarray]]:
    """(first token, token ids) of window `part` of a text, of all of them where it is None; those of fewer than
    `fewest` tokens are left out. Errors: BadSetting."""
    parts = range(len(reading.tokens.spans)) if part is None else [part]
    windows = [window_of(reading, number) for number in parts]
    return [(offset, ids) for offset, ids in windows if len(ids) >= fewest]


def scope(reading: Reading, part: int | None) -> str:
    """What of a text was read, in words."""
    count = len(reading.tokens.spans)
    if count == 1:
        return "this text"
    return f"this text ({f'all {count} windows' if part is None else f'window {part + 1} of {count}'})"


def states_of(context: Context, lm: Model, ids: np.ndarray, layer: int) -> dict[int, States]:
    """Queries and keys of a window of a text by the number of the layer: of all where they fit STATES_BYTES, else of
    one."""
    owner, states = context.kept.get("states", (None, {}))
    if owner == _owner(lm, ids) and layer in states:
        return states
    context.progress(0.0, "queries and keys of the text")
    places = None if fits(lm, len(ids)) else [check_head(lm, layer, 0)]
    return keep_states(context, lm, ids, attention_states(lm, ids, places))


def keep_states(context: Context, lm: Model, ids: np.ndarray, states: dict[int, States]) -> dict[int, States]:
    """Keep queries and keys of layers, by their place, for the next call about the same window; those of another one
    go. Returns them by the number of the layer."""
    numbered = {lm.layer_numbers[place]: of_layer for place, of_layer in states.items()}
    context.kept["states"] = _owner(lm, ids), numbered
    return numbered


def _owner(lm: Model, ids: np.ndarray) -> tuple:
    return lm.name, lm.revision, str(lm.device), str(lm.dtype), ids.tobytes()


def fits(lm: Model, tokens: int) -> bool:
    """Whether queries and keys of all layers are kept for a text of so many tokens."""
    return state_bytes(lm, tokens) <= STATES_BYTES


@torch.no_grad()
def far_reads(states: States, head: int, far: int = FAR) -> np.ndarray:
    """float32 [T]: the largest weight that each query of a window puts on one key `far` or more tokens back; 0 where
    there is none. The window's first token, a sink, is no such key."""
    strongest = np.zeros(states.length, np.float32)
    for start, stop in query_blocks(states.length):
        # No query of the block has a far key from here on.
        last = stop - far
        if last > 1:
            weights = states.scores(head, start, stop).softmax(-1)[:, 1:last]  # [n, keys 1 to last]
            back = torch.arange(start, stop)[:, None] - torch.arange(1, last)
            strongest[start:stop] = weights.masked_fill((back < far).to(weights.device), 0.0).amax(-1).cpu()
    return strongest


def telling_query(states: States, head: int, words: pd.DataFrame, offset: int, far: int = FAR) -> int:
    """The query of a window with the head's strongest far read, so that what is shown first means something.

    A content word of one token is preferred, then any token of a content word, then any token; the window's last token
    where nothing is far away. `words` as `token_table` gives them, `offset` the window's first token.
    """
    reads = far_reads(states, head, far)
    rows = words.iloc[offset : offset + len(reads)]
    content = rows["content"].to_numpy(bool)
    single = content & (rows["piece"].str.strip() == rows["word"]).to_numpy()
    for among in (single, content, np.ones(len(reads), bool)):
        strongest = int(np.where(among, reads, 0.0).argmax())
        if among[strongest] and reads[strongest] > 0:
            return strongest
    return len(reads) - 1
