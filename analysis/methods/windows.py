"""Windows: the first tokens of a text and the last ones (StreamingLLM), growing and dilated (Longformer)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadModel
from ..routers.rotation import turned, unrotate
from ..seam.calls import Block
from ..seam.layers import has_rotary
from .base import Method


@dataclass
class StreamingLLM(Method):
    """Sinks and a window: a token reads the first `n_sink` tokens of the text and the last `window` ones, itself
    included.

    Attention that finds nothing useful falls on the first tokens. Leaving them out breaks many models; keeping four of
    them costs almost nothing. Nothing is learned and nothing in between is read: a method with learned groups must beat
    this at equal reads. *Original* positions are those of the text. With those of the *cache*, as in the first code,
    what is kept is numbered anew: the sinks stand right before the window, however far back they are, so that no
    distance ever grows beyond what is kept. That needs rotary positions; inside the window nothing changes, and a text
    no longer than sinks and window is read as by a dense model either way.
    """

    title = "StreamingLLM"
    paper = "Xiao et al., 2023 (StreamingLLM)"
    exported_with = {"positions": "original"}
    budgeted = "window"

    n_sink: int = field(4, "first tokens of the text that are always read", low=0, high=64)
    window: int = field(128, "tokens that are always read, the token itself included", low=1, high=1 << 20)
    positions: str = field(
        "original", "positions of what is kept: in the text, or in the cache", options=("original", "cache")
    )

    def check(self, lm: Any) -> None:
        if self.positions == "cache" and not has_rotary(lm):
            raise BadModel(
                "Positions in the cache need rotary embeddings, and this model has none: use the positions of the text."
            )
        # the module, and how many dimensions it rotates
        self._layers: dict[int, tuple[Any, int]] = {}

    def encode_tokens(
        self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: Any
    ) -> Tensor | None:
        """[B, T, H + G + 2, D]: queries before their rotation, keys as they are, cosines and sines of the places."""
        if self.positions == "original":
            return None
        self._layers[layer] = module, tables[0].shape[-1]
        batch, _, length, dim = query.shape
        angles = [table.float().expand(batch, length, -1) for table in tables]
        angles = [torch.nn.functional.pad(table, (0, dim - table.shape[-1]))[:, None] for table in angles]
        plain = unrotate(query.detach().float(), module, tables)
        return torch.cat([plain, key.detach().float(), *angles], 1).transpose(1, 2)

    def scores(self, block: Block) -> Tensor:
        if self.positions == "original" or not self.n_sink:
            return block.scores
        # the place of a query in a full cache
        last, scores = self.n_sink + self.window - 1, block.scores
        if block.first_row + len(block.rows) - 1 <= last:
            return scores
        begin = block.first - block.first_column  # [B]
        # a sliding cache has dropped the sinks
        far = (block.rows - block.first[:, None] > last) & (begin >= 0)[:, None]  # [B, n]
        sinks = torch.arange(self.n_sink, device=begin.device)
        places = (begin[:, None] + sinks).clamp(0, scores.shape[-1] - 1)  # [B, sinks]
        moved = self._scores_of_sinks(block, places, (begin + last).clamp(0, scores.shape[-1] - 1))
        columns = places[:, None, None].expand(*scores.shape[:3], -1)
        moved = torch.where(far[:, None, :, None], moved.to(scores), scores.gather(-1, columns))
        return scores.scatter(-1, columns, moved)

    def _scores_of_sinks(self, block: Block, places: Tensor, place: Tensor) -> Tensor:
        """Scores [B, H, n, sinks] of the queries, as if at `place` [B], and the keys at `places` [B, sinks]."""
        heads, (module, size) = block.scores.shape[1], self._layers[block.layer]
        of_queries, of_keys = block.remembered()
        texts = torch.arange(len(place), device=place.device)
        key = of_keys[texts[:, None], places, heads:-2].transpose(1, 2)  # [B, G, sinks, D]
        tables = [of_keys[texts, place, half, :size][:, None] for half in (-2, -1)]
        query = turned(of_queries[:, :, :heads].transpose(1, 2), module, *tables)  # [B, H, n, D]
        assert block.scoring is not None, "the seam says how scores are made"
        return block.scoring.scores(query, key)

    def mask(self, block: Block) -> Tensor:
        return block.near(self.window, self.n_sink)


# Of each layer in the upper half (section 4.1 of the paper).
DILATED_HEADS = 2


@dataclass
class Longformer(Method):
    """A token reads the last `window` tokens, itself included, and the first `n_global` ones. Those are *global*: every
    token reads them, and they read everything before them.

    With equal windows and no dilation this is exactly a window with sinks (StreamingLLM): the first tokens of a causal
    text have nothing before them but each other, so being global gives them nothing. Longformer adds windows that
    *grow* with depth, narrow below and wide above (the mean over layers stays `window`), and *dilation*: two heads of
    each layer in the upper half read every second, third, ... token, so that as many keys reach farther back. The
    original is trained this way, with separate projections for global tokens; here a model trained dense reads so
    through its own projections, without training. BigBird (Zaheer et al., 2020, section 2) is a window, global tokens
    and keys at *random* for each query: here drawn evenly among all before it, in every layer others.
    """

    title = "Longformer"
    paper = "Beltagy et al., 2020 (Longformer), sections 3.1 and 4.1"
    budgeted = "window"
    layers_ = 1

    window: int = field(128, "tokens that are always read, the token itself included", low=1, high=1 << 20)
    n_global: int = field(1, "first tokens of the text, which every token reads", low=0, high=64)
    widths: str = field(
        "equal", "one window for all layers, or windows that grow with depth", options=("equal", "growing")
    )
    dilation: int = field(
        1, "two heads of each layer in the upper half read every n-th token; 1: no dilation", low=1, high=64
    )
    random: int = field(0, "keys at random that each query reads too, as BigBird has them", low=0, high=64)

    def check(self, lm: Any) -> None:
        self.layers_ = lm.config.get_text_config().num_hidden_layers

    def width(self, layer: int) -> int:
        """The window of a layer, in tokens."""
        if self.widths == "equal":
            return self.window
        return max(1, round(2 * self.window * (layer + 1) / (self.layers_ + 1)))

    def mask(self, block: Block) -> Tensor:
        distance, width = block.distances(), self.width(block.layer)
        near = (distance < width)[None]  # [1, n, Tk]
        if self.dilation > 1 and 2 * block.layer >= self.layers_:
            spread = (distance % self.dilation == 0) & (distance < width * self.dilation)
            heads = block.scores.shape[1]
            plain = max(0, heads - DILATED_HEADS)
            near = torch.cat([near.expand(plain, -1, -1), spread.expand(heads - plain, -1, -1)])  # [H, n, Tk]
        read = near[None] | (block.columns < block.first[:, None] + self.n_global)[:, None, None]
        return read | self._drawn(block)[:, None] if self.random else read

    def _drawn(self, block: Block) -> Tensor:
        """bool [B, n, Tk]: the keys at random of each query; the same in whatever block it is read."""
        place = block.rows - block.first[:, None]  # [B, n]
        drawn = torch.zeros(*place.shape, len(block.columns), dtype=torch.bool, device=place.device)
        for number in range(self.random):
            # Mixed so that neighbours have draws that have nothing to do with each other: 24 bits, as a share.
            mixed = (place + 1) * 73_856_093 ^ (number + 1) * 19_349_663 ^ (block.layer + 1) * 83_492_791
            mixed = (mixed ^ mixed >> 13) * 1_274_126_177
            share = (mixed ^ mixed >> 16) & 0xFFFFFF
            key = block.first[:, None] + share * (place + 1) // 0x1000000
            drawn |= key[..., None] == block.columns
        return drawn
