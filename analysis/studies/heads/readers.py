"""Who reads one token: for every head, the later token that gives it most, and what all later tokens give."""

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...errors import BadSetting
from ...statistics.states import BLOCK_BYTES, States
from ..context import Context, protocol, read
from ..text.states import states_of, window_of
from ..text.text import named, quoted, token_table
from .head import KERNEL

TOP = 100  # heads that are listed


@record
class Readers(Worded):
    """The heads that read one token from later ones."""

    token: int = doc("the token that is read")
    later: int = doc("tokens of its window that are far enough away to read it")
    chance: float | None = doc("mean share that these would give it if they read all keys alike")
    readers: pd.DataFrame = doc("per head its strongest reader and the share it gives, and the mean of all later ones")
    tokens: pd.DataFrame = doc("tokens of the text")


def readers(
    model: str = "demo",
    text: str = "",
    token: int = 0,
    top: int = TOP,
    min_distance: int = 1,
    long_text: str = "windows",
    *,
    context: Context,
) -> Readers:
    """Which heads read token `token` of a text from `min_distance` or more tokens later in its window, and where from:
    the `top` heads whose strongest reader gives it the largest share. Errors: BadSetting."""
    lm = context.model(model)
    reading = read(context, lm, text, long_text)
    words = token_table(reading)
    if not 0 <= token < len(words) or not 1 <= top <= 1000 or min_distance < 1:
        raise BadSetting(
            f"The text has tokens 0 to {len(words) - 1:,}, up to 1,000 heads are listed and a reader is 1 or more "
            f"tokens away: token {token:,}, {top:,} heads and a distance of {min_distance:,} were asked for."
        )
    part = int(words["window"].iloc[token])
    offset, ids = window_of(reading, part)
    key, later = token - offset, len(ids) - (token - offset) - min_distance
    rows = []
    for layer in range(lm.num_layers if later > 0 else 0):
        context.progress(layer / lm.num_layers, f"layer {layer}")
        states = states_of(context, lm, ids, layer)[layer]
        for head in range(lm.num_heads):
            shares = received(states, head, key, key + min_distance)
            best = int(shares.argmax())
            rows.append((layer, head, token + min_distance + best, float(shares[best]), float(shares.mean())))
    table = pd.DataFrame(rows, columns=["layer", "head", "position", "attention", "mean"])
    chance = float((1 / np.arange(key + min_distance + 1, len(ids) + 1)).mean()) if later > 0 else None
    often = int((table["mean"] > 2 * (chance or 0)).sum())
    table = table.sort_values("attention", ascending=False, kind="stable").head(top).reset_index(drop=True)
    table["named"] = [named(words, place) for place in table["position"]]
    table["distance"] = table["position"] - token
    about = {"part": part, "token": token, "min_distance": min_distance, "window": len(ids)}
    return Readers(
        token=token,
        later=max(later, 0),
        chance=chance,
        notes=reading.notes,
        sentence=_sentence(table, quoted(named(words, token)), often),
        readers=table,
        tokens=words,
        protocol=protocol("readers", lm, text, len(ids), kernel=KERNEL, **about),
    )


@torch.no_grad()
def received(states: States, head: int, key: int, first: int) -> np.ndarray:
    """float32 [T - first]: the share of attention that each query from `first` on gives to one `key` of a window."""
    size = max(1, BLOCK_BYTES // 4 // states.length)
    starts = range(first, states.length, size)
    blocks = (states.scores(head, start, min(start + size, states.length)).softmax(-1)[:, key] for start in starts)
    return torch.cat([block.float().cpu() for block in blocks]).numpy()


def _sentence(table: pd.DataFrame, name: str, often: int) -> str:
    if table.empty:
        return f"No later token of its window is far enough away to read {name}."
    best = table.iloc[0]
    later = f"{best['distance']:,} {'token' if best['distance'] == 1 else 'tokens'} later"
    beyond_chance = f"{often} head reads" if often == 1 else f"{often} heads read"
    return (
        f"Head {best['head']} of layer {best['layer']} reads {name} most: {quoted(best['named'])}, {later}, gives it "
        f"{best['attention']:.0%} of its attention. {beyond_chance} it more than twice as often as by chance."
    )
