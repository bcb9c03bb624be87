"""What methods share that read only some blocks of a prompt: a map of blocks, made once for every head."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from analysis.attention import Block
from analysis.cache import sees_all
from analysis.calls import MASKED, Attended, Call, Prompt
from analysis.kernels.block_maps import block_map
from analysis.kernels.blocks import block_attention
from analysis.kernels.parts import part
from analysis.layers import shape_of
from analysis.methods.base import Method, read_all, setting
from analysis.methods.evicting import ends_of

PROMPT = "kept blocks"


@dataclass
class Blockwise(Method):
    """Reads kept blocks of the prompt; tokens after it read everything. A subclass names its `kind` of map."""

    saves: ClassVar[str] = "prefill"
    kernels: ClassVar[tuple[str, ...]] = ("prompt",)
    kind: ClassVar[str] = ""
    given: ClassVar[tuple[str, ...]] = ()  # the settings that `block_map` takes

    block: int = setting(128, "queries and keys of a block", "live", 8, 512)
    cut: int = 0  # tokens of the text that are the prompt; 0: those of the first call
    whole_: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)
    maps_: dict[int, list[Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)
    bounds_: list[tuple[int, int]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def share_read(self) -> float:
        """Share of the causal blocks of the last prompt that were read, over layers, heads and texts; layers with a
        sliding window left out."""
        maps = [one for layer in self.maps_.values() for one in layer]
        kept = sum(float(one.sum()) for one in maps)
        return kept / sum(one.numel() // one.shape[-1] * (one.shape[-1] + 1) / 2 for one in maps)

    def check(self, lm) -> None:
        self.whole_ = sees_all(lm.config, shape_of(lm)[0])
        self.maps_.clear()

    def prefill(self, prompt: Prompt) -> None:
        """Estimate the map of each text [1, H, n, n]; a layer with a sliding window reads little and stays dense."""
        if not self.whole_[prompt.layer]:
            return
        self.bounds_ = list(zip(prompt.first.tolist(), ends_of(prompt, self.cut).tolist(), strict=True))
        settings = {name: getattr(self, name) for name in self.given}
        with part("router"):
            texts = (prompt.part(text, *bounds) for text, bounds in enumerate(self.bounds_))
            self.maps_[prompt.layer] = [
                block_map(self.kind, one.query, one.key, self.block, one.scoring, **settings) for one in texts
            ]

    def keep(self, block: Block) -> Tensor | None:
        if not self.whole_[block.layer] or int(block.rows[0]) >= max(end for _, end in self.bounds_):
            return None
        kept = []
        for blocks, (first, end) in zip(self.maps_[block.layer], self.bounds_, strict=True):
            rows, columns = ((x - first).clamp(0, end - first - 1) // self.block for x in (block.rows, block.columns))
            kept.append(blocks[0, :, rows][:, :, columns] | (block.rows >= end)[:, None])
        return torch.stack(kept)

    def attend(self, call: Call) -> Attended:
        """The prompt by its blocks, a token after it by torch's kernel."""
        if call.past or not self.whole_[call.layer]:
            return read_all(call)
        if call.query.requires_grad and torch.is_grad_enabled():
            return Attended(None, MASKED, "The kernel of the blocks has no gradient.")
        if any(bounds != (0, call.query.shape[2]) for bounds in self.bounds_):
            return Attended(None, MASKED, "The prompt ends inside this call.")
        blocks = torch.cat(self.maps_[call.layer])
        with part("set_a"):
            out, _ = block_attention(call.query, call.key, call.value, blocks, self.block, call.scaling)
        share = blocks.float().sum() / (blocks.numel() // blocks.shape[-1] * (blocks.shape[-1] + 1) / 2)
        return Attended(out, PROMPT, f"{share:.0%} of the blocks are kept.")
