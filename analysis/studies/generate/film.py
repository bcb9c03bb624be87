"""What left an answer's KV cache at which step, and which later step of dense attention wanted it."""

import numpy as np
import torch
from torch import Tensor

from ...answer import doc, record
from ...methods.base import Dense
from ...models import Model
from ...seam.attention import Block, apply

# A key that no step misses, and keys that are listed of an answer.
HELD, LISTED = np.iinfo(np.int16).max, 20


@record
class Missed:
    """A key that had left, and what dense attention over the same text gives it from then on."""

    side: int = doc("the row of the answer")
    layer: int = doc("the model's own number of the layer")
    head: int = doc("key-value head")
    position: int = doc("place in the prompt and the answer")
    left: int = doc("the first step, counted from 0, that does not find it")
    attention: float = doc(
        "of later steps up to the first token unlike dense attention's, summed over them and over the query heads that "
        "share the key"
    )
    step: int = doc("the one of them that gives it most")


class _Later:
    """Watches dense attention: what it gives to keys from the step on that does not find them, `left` [L, G, T]."""

    def __init__(self, left: np.ndarray, first: int) -> None:
        self.left, self.first = torch.from_numpy(left), first
        self.sums, self.most = torch.zeros(left.shape), torch.zeros(left.shape)
        self.steps = torch.zeros(left.shape, dtype=torch.long)

    def __call__(self, block: Block, probabilities: Tensor) -> None:
        rows = block.rows >= self.first
        if not rows.any():
            return
        layer, size = block.layer, probabilities.shape[-1]
        steps = (block.rows[rows] - self.first).cpu()
        weights = probabilities[0][:, rows].float().cpu().unflatten(0, (self.left.shape[1], -1)).sum(1)  # [G, n, Tk]
        missed = weights * (self.left[layer][:, None, :size] <= steps[:, None])
        self.sums[layer][:, :size] += missed.sum(1)
        most, which = missed.max(1)
        more = most > self.most[layer][:, :size]
        self.steps[layer][:, :size][more] = steps[which][more]
        self.most[layer][:, :size][more] = most[more]


@torch.no_grad()
def missed(lm: Model, side: int, ids: np.ndarray, new: list[int], left: np.ndarray) -> list[Missed]:
    """The keys that dense attention would have read most after they had left the KV cache of an answer to the prompt
    `ids`, whose first tokens are `new`; `left` as of `Written`."""
    watch = _Later(left, len(ids) - 1)
    sequence = torch.as_tensor([*ids.tolist(), *new[:-1]]).to(lm.device)[None]
    with apply(lm, Dense(), watch):
        lm.lm.base_model(input_ids=sequence, use_cache=False)
    size, kv_heads = left.shape[2], left.shape[1]
    values, places = watch.sums.flatten().topk(min(LISTED, watch.sums.numel()))
    rows = []
    for value, place in zip(values.tolist(), places.tolist(), strict=True):
        layer, head, position = place // size // kv_heads, place // size % kv_heads, place % size
        if value > 0:
            about = side, lm.layer_numbers[layer], head, position, int(left[layer, head, position])
            rows.append(Missed(*about, value, int(watch.steps[layer, head, position])))
    return rows
