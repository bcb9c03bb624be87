"""How groups escape balance: the three paths of Focus, section 4, each a number that can be followed while training.

Table 8 of the paper ticks them off without saying how they were measured; these are the readings taken here. A: the
centroids come to point one way. B: the hidden states move towards one centroid, seen with the router as it was at the
start. C: the projection maps all tokens one way.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.groups.dominance import largest_share
from analysis.groups.router import FocusRouter


def centroid_cosine(centroids: Tensor) -> float:
    """Path A: mean cosine of all pairs of centroids [K, d_s]; near 0 when spread, 1 when all point one way."""
    unit = F.normalize(centroids.detach().float(), dim=-1)
    count = len(unit)
    return float((unit @ unit.T).triu(1).sum() / (count * (count - 1) / 2)) if count > 1 else float("nan")


def hidden_drift(start: Tensor, now: Tensor) -> float:
    """Path B: mean over tokens of 1 - cosine between hidden states [N, width] of the start and of now; 0: no change."""
    return float(1 - F.cosine_similarity(start.float(), now.float(), dim=-1).mean())


def effective_rank(vectors: Tensor) -> float:
    """Path C: exp of the entropy of the singular values' shares of vectors [N, d_s] (Roy & Vetterli, 2007).

    Not centred: from 1 (all tokens on one line) to d_s (as much in every direction).
    """
    values = torch.linalg.svdvals(vectors.detach().float())
    return float(torch.special.entr(values / values.sum().clamp_min(1e-30)).sum().exp())


@torch.no_grad()
def escape_paths(
    router: FocusRouter, inputs: list[Tensor], start: FocusRouter, first: list[Tensor]
) -> dict[str, list[float]]:
    """The paths of every layer: `centroid_cosine`, `drift`, `start_share` (B once more: the largest group's share as
    the router of the start sees the hidden states of now, its balance frozen then) and `rank`, each [L].

    inputs [L][N, width] are the attention inputs of now, `first` those of the same tokens at the start.
    """
    paths = {"centroid_cosine": [], "drift": [], "start_share": [], "rank": []}
    for layer, (now, before) in enumerate(zip(inputs, first, strict=True)):
        paths["centroid_cosine"].append(centroid_cosine(router.centroids[layer]))
        paths["drift"].append(hidden_drift(before, now))
        paths["start_share"].append(
            largest_share(start.soft(layer, now, membership="causal").argmax(-1).cpu(), start.K)
        )
        paths["rank"].append(effective_rank(router.project(layer, now)))
    return paths
