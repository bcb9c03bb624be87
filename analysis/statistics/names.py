"""What heads are called, by the definitions of the literature, and a reader of how far every head fits them; and one
short label for what a head does.

A definition names a span of keys for each query: what a head of that name reads there. The same measure on displaced
spans (another distance, another place) is the null: a head that scores there as well has no claim to the name.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from ..seam.attention import Block

# Mass on the first token: little else is read.
SINK = 0.5
# Mass on the token right before.
PREVIOUS = 0.3
# Times what even reading puts on the tokens that follow earlier copies.
INDUCTION = 3.0
# Far peaks above even reading.
FAR = 0.05
# Mass less than the window back.
LOCAL = 0.9
# Of the entropy of even reading.
DIFFUSE = 0.8
# Mean attention from which an earlier copy, or what followed it, is what a head reads.
ASKED = 0.3
# Of the answer's tokens (Wu et al. 2024, section 2).
COPIES = 0.1
# Of the queries (Voita et al. 2019, section 5.2).
STEADY = 0.9


class Name(NamedTuple):
    """One name: the score it takes, `measure` in words, `source`, and the `needs` of it: the text that a model without
    such heads predicts worse, "repeats" or "needle", or "" where no text needs it."""

    above: float
    measure: str
    source: str
    needs: str = ""


NAMES = {
    "previous token": Name(PREVIOUS, "mean attention to the token right before", "Elhage et al. 2021", "repeats"),
    "duplicate token": Name(
        ASKED, "mean attention to the earlier copy of the query's own token", "Wang et al. 2022", "repeats"
    ),
    "induction": Name(
        ASKED, "mean attention to the token that followed the earlier copy", "Olsson et al. 2022", "repeats"
    ),
    "retrieval": Name(
        COPIES,
        "share of an answer's tokens whose copy in the needle is the key read most, with the answer given",
        "Wu et al. 2024",
        "needle",
    ),
    "sink": Name(SINK, "mean attention to the first token", "Xiao et al. 2023; Gu et al. 2024, who ask for 30%"),
    "local": Name(LOCAL, "mean attention within the last eighth of the text", "Beltagy et al. 2020, a window"),
    "even": Name(DIFFUSE, "entropy, as a share of even reading's", "Clark et al. 2019, broad attention"),
    "positional": Name(STEADY, "share of queries whose most read key is equally far back", "Voita et al. 2019"),
}


class PatternReading:
    """Collects, for all heads and texts [B, T] read whole, what a watch of `apply` sees: `apply(..., watch=it.watch)`.

    `spans`: name -> int64 [R, B, T, 2], first key and past the last for every query of R variants; empty spans are not
    counted. Afterwards `shares()`: name -> [R, L, H, B], the mean attention to the spans; `best` [L, H, B, T]: the key
    that each query reads most; `evenness()` [L, H, B]: entropy as a share of that of even reading.
    """

    def __init__(self, layers: int, heads: int, shape: tuple[int, int], spans: dict[str, np.ndarray]) -> None:
        texts, length = shape
        self.spans = {name: torch.from_numpy(some) for name, some in spans.items()}
        self.sums = {name: np.zeros((len(some), layers, heads, texts)) for name, some in spans.items()}
        self.best = np.zeros((layers, heads, texts, length), np.int64)
        self.entropy, self.most = np.zeros((2, layers, heads, texts))

    def watch(self, block: Block, probabilities: torch.Tensor) -> None:
        """A block of queries of one layer, probabilities [B, H, n, m]."""
        p = probabilities.detach().float().cpu()
        rows, layer = block.rows.cpu(), block.layer
        keys = p.shape[-1]
        self.best[layer, :, :, rows.numpy()] = p.argmax(-1).permute(2, 1, 0).numpy()  # [n, H, B]
        visible = block.visible.cpu().expand(len(p), 1, len(rows), keys).sum(-1)  # [B, 1, n]
        self.entropy[layer] += torch.special.entr(p).sum((2, 3)).T.numpy()
        self.most[layer] += visible.clamp(min=1).log().sum(-1).T.numpy()
        before = F.pad(p.double().cumsum(-1), (1, 0))  # [B, H, n, m + 1]: attention to the keys before each edge
        for name, variants in self.spans.items():
            for variant, span in enumerate(variants[:, :, rows].clamp(0, keys)):  # [B, n, 2]
                edges = span[:, None].expand(-1, p.shape[1], -1, -1)
                low, high = before.gather(-1, edges).unbind(-1)
                self.sums[name][variant, layer] += (high - low).sum(-1).T.numpy()

    def shares(self) -> dict[str, np.ndarray]:
        """name -> mean attention to its spans [R, L, H, B]; NaN for a text without any."""
        shares = {}
        for name, variants in self.spans.items():
            counts = (variants[..., 1] > variants[..., 0]).sum(-1).numpy()  # [R, B]
            with np.errstate(invalid="ignore", divide="ignore"):
                shares[name] = self.sums[name] / counts[:, None, None]
        return shares

    def evenness(self) -> np.ndarray:
        """Entropy as a share of that of even reading [L, H, B], both summed over the queries."""
        return self.entropy / np.maximum(self.most, np.finfo(float).tiny)


def copied(best: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Share of the queries with a span whose most read key lies in it: best [L, H, B, T], spans [R, B, T, 2] -> [R, L,
    H, B]."""
    low, high = spans[:, None, None, ..., 0], spans[:, None, None, ..., 1]
    queries = (high > low).sum(-1)
    return ((best >= low) & (best < high)).sum(-1) / np.maximum(queries, 1)


def steady(best: np.ndarray, first: int) -> np.ndarray:
    """Share of the queries from `first` on whose most read key is as far back as most often with this head: best [L, H,
    B, T] -> [L, H, B]."""
    back = np.arange(first, best.shape[-1]) - best[..., first:]
    # A permuted row of `best`, a null, reads ahead too.
    back += best.shape[-1]
    usual = np.array([np.bincount(distances.ravel()).argmax() for distances in back.reshape(-1, *back.shape[2:])])
    return (back == usual.reshape(back.shape[:2])[..., None, None]).mean(-1)


def head_labels(heads: pd.DataFrame, chance: pd.DataFrame) -> list[str]:
    """A short label for each row of `HeadReading.table`, held against `HeadReading.chance`.

    The first that fits: `sink` (at least half of its attention on the first token), `previous token` (30% or more on
    the token before), `induction` (3 times as much as even reading on what followed earlier copies of a token), `far`
    (`far_peaks` of 5% or more), `diffuse` (80% or more of the entropy of even reading), `local` (90% or more less
    than a window back), else `mixed`. The thresholds are this project's, and a label says less than the numbers.
    """
    even = heads[["layer"]].merge(chance, on="layer", how="left")
    fits = {
        "sink": heads["first_token_mass"] >= SINK,
        "previous token": heads["previous_token"] >= PREVIOUS,
        "induction": heads["induction"] >= INDUCTION * even["induction"].to_numpy(),
        "far": heads["far_peaks"] >= FAR,
        "diffuse": heads["entropy"] >= DIFFUSE * even["entropy"].to_numpy(),
        "local": heads["window_mass"] >= LOCAL,
    }
    return [next((name for name, fit in fits.items() if fit.iloc[row]), "mixed") for row in range(len(heads))]
