"""Performer: the softmax in the place of which stand products of positive random features (FAVOR+)."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadModel
from ..kernels.pool import accelerated, on_host
from ..seam.calls import Block, CosSin, stacked
from ..seam.layers import shape_of
from .base import Method

# Added to every feature, as in the original code.
EPS = 1e-4
# Of a score: queries and keys must give what the model computes.
CLOSE = 1e-2


@dataclass
class Performer(Method):
    """Every token reads all tokens before it, with weights that are products of `features` positive random features of
    query and key. On average over the draws such a product is the exponential of the score.

    The sum over all earlier keys then becomes a matrix of fixed size that does not grow with the text: that makes it
    cheap. The price is chance: the variance of a weight grows like the exponential of the squared length of query plus
    key. Models trained with a softmax have long ones, so without training expect it to fail; more features help slowly.
    The layer's factor is put half on queries and half on keys, as in the paper, so models of the same function whose
    factor stands elsewhere err differently. Features are random directions, orthogonal in blocks, drawn once for each
    layer. Each key is scaled by its own largest feature; the original takes the largest of the whole text, which is a
    small leak. It refuses models that cap their scores (Gemma 2): no product of features is a capped exponential. The
    page counts all keys as read, and the kernel here is a reference that forms all weights.
    """

    title = "Performer"
    paper = "Choromanski et al., 2020 (Performer), sections 2.3 and 2.4"
    masked_scores = 4.5

    features: int = field(0, "features of each query and key; 0: d ln d for heads of d dimensions", low=0, high=4096)
    seed: int = field(0, "seed of the random features; average over several", low=0, high=99)

    reads_of_attended = 0.0  # no key is read: see extra_vectors

    @property
    def extra_vectors(self) -> float:
        """Key and value vectors / 2 in the matrix that a query reads: for each feature a sum of values, and of keys."""
        return self._directions.shape[1] * (self._directions.shape[2] + 1) / (2 * self._directions.shape[2])

    def check(self, lm: Any) -> None:
        config = lm.config.get_text_config()
        if getattr(config, "attn_logit_softcapping", None):
            raise BadModel(
                f"Performer cannot run {config.model_type} models: they cap their attention scores (at "
                f"{config.attn_logit_softcapping:g}), and no product of features is a capped exponential; choose "
                "another method."
            )
        layers, _, _, dim = shape_of(lm)
        count, draw = self.features or max(1, int(dim * math.log(dim))), torch.Generator().manual_seed(self.seed)
        directions = [orthogonal_directions(count, dim, draw) for _ in range(layers)]
        self._directions = torch.stack(directions).to(lm.device)  # [L, m, D]

    def encode_tokens(self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin) -> Tensor:
        """[B, T, H + G, D]: query and key of each token."""
        return stacked(query, key)

    def scores(self, block: Block) -> Tensor:
        """Logarithms of the products of features, up to a number that is the same for all keys of a query."""
        query, key = block.queries_and_keys()  # [B, H, n, D], [B, G, Tk, D]
        assert block.scoring is not None, "the seam says how scores are made"
        grouped, scaling = query.unflatten(1, (key.shape[1], -1)), block.scoring.factor
        # an accelerator is asked once a text
        if not accelerated(query) or block.first_row == 0:
            self._same(block, (grouped[:, :, :, -1:] @ key.mT[:, :, None]).flatten(1, 2) * scaling)
        directions = self._directions[block.layer].to(key.device)
        of_query, _ = random_features(grouped * scaling**0.5, directions)
        of_key, largest = random_features(key * scaling**0.5, directions)
        # over queries of all heads of a group: broadcast, the features of keys would be copied for each
        products = of_query.flatten(2, 3) @ of_key.mT  # [B, G, H / G * n, Tk]
        scores = products.log() if torch.is_grad_enabled() else products.log_()
        return scores.add_(largest.mT).unflatten(2, grouped.shape[2:4]).flatten(1, 2)

    def _same(self, block: Block, last: Tensor) -> None:
        """Refuse a layer that computes other scores [B, H, 1, Tk] of its last query than these."""
        scores = block.scores[:, :, -1:].float()
        close = torch.isclose(last, scores, rtol=CLOSE, atol=10 * CLOSE) | ~block.visible[:, :, -1:]
        if not on_host(close.all(), "same scores"):
            raise BadModel(
                f"Layer {block.layer} of this model changes its scores in a way that is not known here, so Performer "
                "cannot stand in their place: choose another method."
            )


def random_features(x: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """Positive features [..., m] of x [..., D] along directions [m, D], the largest about 1, and the logarithm of what
    they were divided by [..., 1]. The mean over directions of exp(both logarithms) / m times the product of the
    features of x and y is exp(x . y), but for EPS."""
    exponents = (x @ directions.mT).sub_(x.square().sum(-1, keepdim=True) / 2)
    largest = exponents.amax(-1, keepdim=True)
    if torch.is_grad_enabled():
        return (exponents - largest).exp() + EPS, largest
    # features of all keys are many: they are made in one place
    return exponents.sub_(largest).exp_().add_(EPS), largest


def orthogonal_directions(count: int, dim: int, draw: torch.Generator) -> Tensor:
    """Random directions [m, D], each like a vector of D normal numbers, orthogonal to the others of its block of D.

    A decomposition Q R of normal numbers has a uniform Q only where the diagonal of R is positive: signs are set so, or
    the features would be wrong on average.
    """
    blocks = []
    for _ in range(-(-count // dim)):
        q, r = torch.linalg.qr(torch.randn(dim, dim, generator=draw))
        blocks.append((q * r.diagonal().sign()).T)
    length = torch.randn(count, dim, generator=draw).norm(dim=1, keepdim=True)
    return torch.cat(blocks)[:count] * length
