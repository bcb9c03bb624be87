"""The strongest far links of every token, both ways, streamed block by block: what it reads, and who reads it later."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..kernels.far import link, strongest
from ..kernels.pool import accelerated
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
            if not reach:
                return
            given = probabilities[0].float().contiguous()
            if accelerated(given):
                share, head = (part.cpu().numpy() for part in given[..., :reach].max(0))
            else:
                share, head = (np.empty((given.shape[1], reach), kind) for kind in (np.float32, np.int32))
                strongest(given.numpy(), share, head)
            visible = block.visible[0, 0, :, :reach].expand(share.shape).contiguous().cpu().numpy()
            layer = block.layer if self.numbers is None else self.numbers[block.layer]
            link(
                *(share, head.astype(np.int32), visible, block.rows.cpu().numpy(), block.columns[:reach].cpu().numpy()),
                *(self.min_distance, start, layer * self.heads),
                *(self.place.numpy(), self.head.numpy(), self.share.numpy()),
            )

        return watch
