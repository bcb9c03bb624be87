"""What methods share that read only some blocks of a prompt: a map of blocks, made once for every head."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..declaration import field
from ..kernels.blocks import block_attention
from ..kernels.parts import part
from ..kernels.scoring import Scoring
from ..seam.cache import sees_all
from ..seam.calls import MASKED, Attended, Block, Call, Prompt
from ..seam.layers import shape_of
from .base import Method, read_all
from .evicting import prompt_ends

PROMPT = "kept blocks"


@dataclass
class Blockwise(Method):
    """Reads kept blocks of the prompt; tokens after it read everything. A subclass chooses them in `choose_blocks`."""

    saves: ClassVar[str] = "prefill"
    kernels: ClassVar[tuple[str, ...]] = ("prompt",)

    block: int = field(128, "queries and keys of a block", low=8, high=512)
    cut: int = 0  # tokens of the text that are the prompt; 0: those of the first call

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        """bool [B, H, n, n] of queries [B, H, T, D] and keys [B, G, T, D] in float32, n = ceil(T / block)."""
        raise NotImplementedError

    def block_map(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        """The chosen blocks up to the diagonal, which is always read: bool [B, H, n, n]."""
        blocks = self.choose_blocks(q, k, scoring)
        return blocks.tril() | torch.eye(blocks.shape[-1], dtype=torch.bool, device=blocks.device)

    @property
    def share_read(self) -> float:
        """Share of the causal blocks of the last prompt that were read, over layers, heads and texts; layers with a
        sliding window left out."""
        maps = [blocks for layer in self.maps_.values() for blocks in layer]
        return sum(float(blocks.sum()) for blocks in maps) / sum(map(_causal_blocks, maps))

    def check(self, lm: Any) -> None:
        self.whole_ = sees_all(lm.config, shape_of(lm)[0])
        self.maps_: dict[int, list[Tensor]] = {}  # layer -> of each text bool [1, H, n, n]

    def prefill(self, prompt: Prompt) -> None:
        """Estimate the map of each text; a layer with a sliding window reads little and stays dense."""
        if not self.whole_[prompt.layer]:
            return
        self.bounds_ = list(zip(prompt.first.tolist(), prompt_ends(prompt, self.cut).tolist(), strict=True))
        with part("router"), torch.no_grad():
            texts = [prompt.part(text, *bounds) for text, bounds in enumerate(self.bounds_)]
            self.maps_[prompt.layer] = [self.block_map(text.query, text.key, text.scoring) for text in texts]

    def mask(self, block: Block) -> Tensor | None:
        if not self.whole_[block.layer] or int(block.rows[0]) >= max(end for _, end in self.bounds_):
            return None
        readable = []
        for blocks, (first, end) in zip(self.maps_[block.layer], self.bounds_, strict=True):
            rows, columns = ((x - first).clamp(0, end - first - 1) // self.block for x in (block.rows, block.columns))
            readable.append(blocks[0, :, rows][:, :, columns] | (block.rows >= end)[:, None])
        return torch.stack(readable)

    def attend(self, call: Call) -> Attended:
        """The prompt by its blocks, a token after it by torch's kernel."""
        if call.past or not self.whole_[call.layer]:
            return read_all(call)
        if call.needs_gradient:
            return Attended(None, MASKED, "The kernel of the blocks has no gradient.")
        if any(bounds != (0, call.query.shape[2]) for bounds in self.bounds_):
            return Attended(None, MASKED, "The prompt ends inside this call.")
        blocks = torch.cat(self.maps_[call.layer])
        with part("set_a"):
            out, _ = block_attention(call.query, call.key, call.value, blocks, self.block, call.scaling)
        return Attended(out, PROMPT, f"{blocks.float().sum() / _causal_blocks(blocks):.0%} of the blocks are kept.")


def _causal_blocks(blocks: Tensor) -> float:
    """How many blocks of maps [B, H, n, n] lie on and below the diagonal."""
    return blocks.numel() // blocks.shape[-1] * (blocks.shape[-1] + 1) / 2
