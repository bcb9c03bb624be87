"""The tokens of a text as the table every page paints from, and what one of them is called."""

import numpy as np
import pandas as pd

from ...groups.words import content_tokens, word_of_tokens
from ...models import Model
from ..context import Reading


def token_table(reading: Reading) -> pd.DataFrame:
    """One row per token: `position window piece start end word content`; start and end are character offsets."""
    tokens = reading.tokens
    columns = {"position": range(len(tokens)), "window": tokens.window, "piece": tokens.pieces}
    columns |= {"start": tokens.starts, "end": tokens.ends}
    columns["word"] = word_of_tokens(reading.text, tokens.starts, tokens.ends)
    columns["content"] = content_tokens(reading.text, tokens.starts, tokens.ends)
    return pd.DataFrame(columns)


def keys_table(words: pd.DataFrame, keys: np.ndarray, query: int, offset: int) -> pd.DataFrame:
    """`key position piece word distance` of keys of a query, by their place in a window and in the text; `words` as
    `token_table` gives them, `offset` the window's first token."""
    rows = words.iloc[offset + keys]
    named = {name: rows[name].to_numpy() for name in ("piece", "word")}
    return pd.DataFrame({"key": keys, "position": offset + keys, **named, "distance": query - keys})


def named(words: pd.DataFrame, at: int) -> str:
    """What token `at` of a `token_table` is called: its word, or its piece in the word, as "ra in C|ra|le"."""
    word, piece = words["word"].to_numpy(), words["piece"].to_numpy()
    first, last = at, at + 1
    while first > 0 and word[first - 1] == word[at] and not piece[first][:1].isspace():
        first -= 1
    while last < len(words) and word[last] == word[at] and not piece[last][:1].isspace():
        last += 1
    pieces = [text.strip() for text in piece[first:last]]
    # Bytes of one character are called by it.
    if len(pieces) == 1 or "".join(pieces) != word[at]:
        return word[at]
    return f"{pieces[at - first]} in {'|'.join(pieces)}"


def quoted(word: str) -> str:
    """A whole word in a sentence."""
    return f"“{word}”"


def cells_table(model: Model, **columns: np.ndarray) -> pd.DataFrame:
    """Tables [L, H] as columns `layer head` and their names, one row per head, layers by the model's own numbers."""
    layers, heads = next(iter(columns.values())).shape
    layer, head = np.divmod(np.arange(layers * heads), heads)
    values = {name: value.ravel() for name, value in columns.items()}
    return numbered(model, pd.DataFrame({"layer": layer, "head": head, **values}))


def numbered(model: Model, table: pd.DataFrame) -> pd.DataFrame:
    """A table with the model's own numbers of its layers where it has their places among those of softmax attention."""
    return table.assign(layer=np.asarray(model.layer_numbers)[table["layer"].to_numpy(int)])
