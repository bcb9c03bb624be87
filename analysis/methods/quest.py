"""Quest: the pages of keys that could hold the largest scores, told from two vectors a page."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..declaration import field
from ..kernels.gathered import Pages, paged_attention, upper_bounds, visits_keys
from ..kernels.parts import part
from ..seam.cache import GrowingCache
from ..seam.calls import MASKED, Attended, Block, Call, CosSin, stacked
from .base import Method, read_all

LEAST_PAGES = 3
STEP = "gathered pages"


@dataclass
class Quest(Method):
    """The KV cache is cut into pages of `page` keys. A query of a head reads its own page and those complete pages
    before it whose keys could score highest: `budget` keys in all, at least three pages.

    Of each page only the smallest and the largest value of every channel are looked at. They bound the score of every
    key in the page from above: no key is better than its page seemed, but a page may promise more than it holds. The
    first `dense_layers` layers read everything. A page that the model's own sliding window cuts is read without a
    bound, like the newest one. The original keeps prompts dense and chooses pages only for new tokens. Here every token
    of a text chooses as if it were new, which is what the perplexity shows; the kernel gathers pages for new tokens,
    which is where reads are saved. It needs no training, and the softmax over what it reads is exact.
    """

    title = "Quest"
    paper = "Tang et al., 2024 (Quest), section 3"
    budgeted = "budget"
    kernels = ("token",)
    takes_sinks = True

    budget: int = field(128, "keys that each query reads, of each head, in whole pages", low=1, high=1 << 20)
    page: int = field(16, "keys of a page", low=1, high=256)
    dense_layers: int = field(2, "first layers that read everything", low=0, high=64)

    @property
    def pages(self) -> int:
        """How many pages a query reads, the newest among them."""
        return max(LEAST_PAGES, self.budget // self.page)

    def check(self, lm: Any) -> None:
        self.held_: dict[int, Pages] = {}

    @property
    def reads_of_visible(self) -> float:
        """Two vectors for each page."""
        return 1 / self.page

    @property
    def kv_cache(self) -> type[GrowingCache]:
        """One whose steps copy no page."""
        return GrowingCache

    def encode_tokens(
        self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin
    ) -> Tensor | None:
        """[B, T, H + G, D]: query and key of each token, of the layers that choose."""
        return None if layer < self.dense_layers else stacked(query, key).detach()

    def mask(self, block: Block) -> Tensor | None:
        if block.layer < self.dense_layers:
            return None
        query, key = block.queries_and_keys()  # [B, H, n, D], [B, G, Tk, D]
        of_keys = (block.columns - block.first[:, None]).div(self.page, rounding_mode="floor")  # [B, Tk]
        of_queries = (block.rows - block.first[:, None]).div(self.page, rounding_mode="floor")  # [B, n]
        base = of_keys.amin(1, keepdim=True)
        of_keys, of_queries = of_keys - base, of_queries - base
        # as many as keys in a row can touch: no text has more, and nothing is read of those that are empty
        count = (len(block.columns) - 2) // self.page + 2
        slot = of_keys[:, None, :, None].expand_as(key)
        empty = key.new_zeros(*key.shape[:2], count, key.shape[-1])
        low, high = (empty.scatter_reduce(2, slot, key, by, include_self=False) for by in ("amin", "amax"))
        inside = (of_keys[..., None] == torch.arange(count, device=key.device)).float()  # [B, Tk, N]
        visible_keys = (block.visible.float() @ inside[:, None])[:, 0]  # [B, n, N]: how many keys of each page
        newest = torch.arange(count, device=key.device) == of_queries[..., None]
        scored = ((visible_keys == self.page) & ~newest)[:, None]  # [B, 1, n, N]
        bounds = upper_bounds(query, low, high).masked_fill(~scored, -torch.inf)  # [B, H, n, N]
        best = bounds.topk(min(self.pages - 1, count), -1).indices
        chosen = torch.zeros_like(bounds, dtype=torch.bool).scatter_(-1, best, True) & scored
        return visits_keys(of_keys[:, None], chosen | ~scored)

    def attend(self, call: Call) -> Attended:
        """A token after a text gathers its pages; layers that read everything do so by torch's kernel."""
        if call.layer < self.dense_layers:
            return read_all(call)
        if call.past == 0 or call.query.shape[2] > 1:
            return Attended(None, MASKED, "A prompt has no kernel: only a token after it gathers its pages.")
        if call.needs_gradient:
            return Attended(None, MASKED, "Gathering has no gradient.")
        with part("router"):
            pages = self.held_.get(call.layer)
            if pages is None or pages.size != self.page or pages.tokens != call.past:  # another text
                pages = self.held_[call.layer] = Pages(self.page)
            bounds = pages.follow(call.key)
            chosen = self._choose(call.query, bounds)
        out = paged_attention(*call.states, chosen, self.page, call.scaling, call.sink_logits)
        return Attended(out, STEP, "One token reads the pages of largest bound and the newest one.")

    def _choose(self, query: Tensor, bounds: tuple[Tensor, Tensor] | None) -> Tensor:
        """int64 [B, H, P - 1]: the complete pages that one query of each head reads, fewer where there are fewer."""
        if bounds is None:
            return torch.zeros(*query.shape[:2], 0, dtype=torch.long, device=query.device)
        scores = upper_bounds(query.float(), *(bound.float() for bound in bounds))[:, :, 0]
        return scores.topk(min(self.pages - 1, scores.shape[-1]), -1).indices
