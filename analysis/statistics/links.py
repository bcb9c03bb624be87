"""The strongest far links of every token, both ways, streamed block by block: what it reads, and who reads it later."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..seam.attention import Block

# Links that are kept of a token on either side.
MOST = 4


class FarLinks:
    """Collects, over heads, layers and windows, the MOST far tokens that each token reads most, and that read it most.

    A link is as strong as the head that gives most makes it. As in `FarReading`, far is at least `min_distance` tokens
    back, and a window's first token is no key. `place` [2, tokens, MOST]: the other token in the text, -1 for none;
    first what a token reads, then who reads it, the strongest in front. `head`: counted over all layers; `share`: of
    that head's attention. `numbers`: what the layers are called, 0 to L - 1 unless given.
    """

    def __init__(self, tokens: int, heads: int, min_distance: int, numbers: Sequence[int] | None = None) -> None:
        self.heads, self.min_distance, self.numbers = heads, min_distance, numbers
        self.place = torch.full((2, tokens, MOST), -1, dtype=torch.int32)
        self.head = torch.zeros(2, tokens, MOST, dtype=torch.int16)
        self.share = torch.zeros(2, tokens, MOST)

    def window(self, start: int) -> Callable[[Block, Tensor], None]:
        """A watch for the window whose first token is token `start` of the text (batch of one)."""

        def watch(block: Block, probabilities: Tensor) -> None:
            # Behind them no key is far from any query of the block.
            reach = int((block.columns <= block.rows.max() - self.min_distance).sum())
            far = block.visible[0, 0, :, :reach] & (block.columns[:reach] > 0)
            far = far & (block.distances()[:, :reach] >= self.min_distance)
            if not far.any():
                return
            # [n, keys], of the head that gives most.
            share, head = probabilities[0, ..., :reach].max(0)
            share = torch.where(far, share.float(), 0.0)
            layer = block.layer if self.numbers is None else self.numbers[block.layer]
            head = head + layer * self.heads
            queries, keys = start + block.rows, start + block.columns[:reach]
            self._add(0, queries, keys, share, head)
            self._add(1, keys, queries, share.T.contiguous(), head.T)

        return watch

    def _add(self, side: int, own: Tensor, others: Tensor, share: Tensor, head: Tensor) -> None:
        """Put the strongest of a block, `share` and `head` [own, others], among those so far. A pair that comes again
        in another layer keeps its stronger head; nothing is lost, as every layer brings its MOST strongest."""
        best = share.topk(min(MOST, share.shape[1]), dim=1)
        own = own.cpu()
        joined = [self.place[side, own], self.head[side, own], self.share[side, own]]
        new = [others[best.indices], head.gather(1, best.indices), best.values]
        place, head, share = (torch.cat([old, add.to(old)], 1) for old, add in zip(joined, new, strict=True))
        order = share.argsort(dim=1, descending=True, stable=True)
        place, head, share = (values.gather(1, order) for values in (place, head, share))
        earlier = torch.ones(order.shape[1], order.shape[1], dtype=torch.bool).tril(-1)
        again = ((place[:, :, None] == place[:, None]) & earlier).any(2)
        kept = share.masked_fill(again, 0.0).topk(MOST, dim=1)
        self.place[side, own] = place.gather(1, kept.indices).masked_fill(kept.values <= 0, -1)
        self.head[side, own] = head.gather(1, kept.indices)
        self.share[side, own] = kept.values
