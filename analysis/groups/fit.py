"""A Focus router for every model on day one: fitted on attention inputs, nothing trained (definitions 2.15).

It groups tokens of one kind, and such tokens carry redundant keys, so expect it to be no better than random groups for
perplexity. It is labelled "not trained" wherever it shows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting
from .kmeans import spherical_kmeans
from .router import FocusRouter, RouterSettings, score_spread
from .sinkhorn import assign, frozen_potential

# Tokens on which the scale is searched.
SAMPLE = 4096
# Extra directions that keep the wanted ones accurate.
SPARE = 8
HALVINGS = 16


@torch.no_grad()
def fit_without_training(
    hidden: Sequence[Tensor],
    groups: int = 8,
    top: int = 1,
    d_s: int = 16,
    *,
    confidence: float = 0.9,
    seed: int = 0,
    progress: Callable[[float, str], None] = lambda fraction, stage: None,
    **fields: Any,
) -> FocusRouter:
    """Router from samples of the attention inputs, hidden [L][N, width], each layer by itself.

    W = the top `d_s` principal directions (no bias: the mean adds a constant per group, which the potential absorbs);
    spherical k-means of the centred vectors there; C = unit centroids times s, with s set so that the mean confidence,
    measured with the balanced potential, is `confidence` (cosine scores have no scale, and the confidence they have);
    the potential from all N tokens. `fields`: other settings (`RouterSettings`).
    Errors: BadSetting for fewer tokens than groups, or d_s above the width.
    """
    settings = RouterSettings(groups=groups, top=top, d_s=d_s, **fields)
    tokens, width = hidden[0].shape
    if d_s > width:
        raise BadSetting(f"Routing vectors cannot have {d_s} dimensions in a model of width {width}: choose fewer.")
    if tokens < groups:
        raise BadSetting(f"{groups} groups need {groups} or more calibration tokens, not {tokens}; give a longer text.")
    if groups > 1 and not 1 / groups < confidence < 1:
        raise BadSetting(f"The confidence of {groups} groups lies between 1/{groups} and 1, not at {confidence}.")
    router = FocusRouter(len(hidden), width, settings).to(hidden[0].device)
    reached = []
    for layer, sample in enumerate(hidden):
        sample = sample.to(hidden[0].device).float()
        centred = sample - sample.mean(0)
        directions = principal_directions(centred, d_s, seed)  # [width, d_s]
        centroids, _ = spherical_kmeans(centred @ directions, groups, seed)
        router.projection[layer] = directions
        if settings.similarity == "dot":
            # Rows evenly spaced over the sample: the search needs thousands of tokens, not all.
            few = (centred[:: max(1, -(-tokens // SAMPLE))] @ directions) @ centroids.T  # [<= SAMPLE, K]
            centroids = centroids * _scale(few, confidence, settings.temperature)
        router.centroids[layer] = centroids
        scores = router.scores(layer, sample)
        router.potential[layer] = frozen_potential(scores, settings.temperature)
        reached.append(round(_confidence(scores, settings.temperature, router.potential[layer]), 4))
        progress((layer + 1) / len(hidden), "fitting the router")
    router.about = {"kind": "not trained", "steps": 0, "seed": seed, "tokens": tokens, "confidence": reached}
    return router.cpu()


@torch.no_grad()
def principal_directions(centred: Tensor, count: int, seed: int = 0, rounds: int = 12) -> Tensor:
    """The `count` directions of largest variance of centred rows [N, d] -> orthonormal columns [d, count].

    Subspace iteration, so a width of 8,192 needs no d x d decomposition; each direction's largest entry is positive.
    """
    # Directions of nearly one variance turn with what is rounded in float32, and tokens between two groups with them.
    dtype, centred = centred.dtype, centred if centred.device.type == "mps" else centred.double()
    wide = min(count + SPARE, centred.shape[1])
    draw = torch.randn(centred.shape[1], wide, generator=torch.Generator().manual_seed(seed))
    basis = torch.linalg.qr(draw.to(centred))[0]
    for _ in range(rounds):
        basis = torch.linalg.qr(centred.T @ (centred @ basis))[0]
    turn = torch.linalg.eigh((centred @ basis).T @ (centred @ basis))[1].flip(-1)
    directions = F.normalize((basis @ turn)[:, :count], dim=0)
    peak = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    return (directions * torch.where(peak < 0, -1.0, 1.0)).to(dtype)


def _confidence(scores: Tensor, temperature: float, potential: Tensor) -> float:
    return float(assign(scores, temperature, potential).amax(-1).mean())


def _scale(scores: Tensor, confidence: float, temperature: float) -> float:
    """The factor on scores [N, K] at which balanced assignment has this mean confidence (halving on a log scale)."""
    spread = float(score_spread(scores))
    if scores.shape[-1] == 1 or spread < 1e-12:
        return 1.0
    low, high = 1e-3 * temperature / spread, 1e3 * temperature / spread
    # The confidence rises with the scale, from 1/K to 1.
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        potential = frozen_potential(scores * middle, temperature)
        if _confidence(scores * middle, temperature, potential) < confidence:
            low = middle
        else:
            high = middle
    return (low * high) ** 0.5
