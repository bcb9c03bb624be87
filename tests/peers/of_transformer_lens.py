"""TransformerLens: how far the heads of the bundled GPT-2 read the token before, an earlier copy, what followed it."""

import json
from pathlib import Path

import numpy as np
import torch

from analysis.methods.base import Method
from analysis.models import load_model
from analysis.places import CACHE
from analysis.seam.attention import apply
from analysis.statistics.names import PatternReading

ROWS = ("previous token", "duplicate token", "induction")
HALF, MODEL = 60, CACHE / "demo-gpt2"


def text() -> np.ndarray:
    """Different random tokens, twice, so that each has one earlier copy: int64 [1, T]."""
    drawn = np.random.default_rng(0).permutation(load_model(str(MODEL)).vocabulary - 10)[:HALF] + 5
    return np.concatenate([drawn, drawn])[None]


def spans(first: int, back: int) -> np.ndarray:
    """[1, 1, T, 2]: of every query from `first` on the one key `back` tokens before it."""
    places = np.arange(2 * HALF)
    low = np.where(places >= first, places - back, 0)
    return np.stack([low, low + (places >= first)], -1)[None, None]


def ask(folder: Path) -> None:
    """The model and the text."""
    (folder / "asked.json").write_text(json.dumps({"model": str(MODEL), "ids": text()[0].tolist()}))


def compare(folder: Path) -> list[dict]:
    """The largest difference of a head's score. Theirs is a share of the attention of all queries, ours of those that
    have such a key."""
    answered, model = json.loads((folder / "answered.json").read_text()), load_model(str(MODEL), dtype="float32")
    offsets = dict(zip(ROWS, ((1, 1), (HALF, HALF), (HALF, HALF - 1)), strict=True))
    reading = PatternReading(
        model.num_layers, model.num_heads, (1, 2 * HALF), {name: spans(*offset) for name, offset in offsets.items()}
    )
    with torch.no_grad(), apply(model, Method(), watch=reading.watch):
        model.lm(torch.from_numpy(text()), use_cache=False)
    rows = []
    for name, shares in reading.shares().items():
        theirs = np.array(answered[name]) * 2 * HALF / (2 * HALF - offsets[name][0])
        apart = {"score": float(np.abs(shares[0, ..., 0] - theirs).max())}
        rows.append({"case": name, "same": True, "apart": apart, "most": 1e-5})
    return rows
