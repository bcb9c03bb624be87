"""What methods share that shrink the KV cache once, when the prompt has been read: a score for every key, a budget."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from analysis.attention import Block
from analysis.cache import CompactCache, sees_all
from analysis.calls import MASKED, Attended, Call, Prompt
from analysis.errors import BadSetting
from analysis.eviction import evict, eviction_scores
from analysis.eviction.scores import KINDS, REACH, exact, expected_attention
from analysis.layers import shape_of
from analysis.methods.base import Method, read_all, setting
from analysis.routers.rotation import turned, unrotate

PROMPT, STEP = "dense, then compacted", "compacted cache"
SCORES = (*KINDS, "expected_attention")  # rules that score the keys of a prompt


@dataclass
class Evicting(Method):
    """Reads a prompt densely and then drops keys for good: tokens after it read what is left, and each other.

    A subclass gives `worth`, the scores of the keys, and may change `stay`, which keys these leave.
    """

    saves: ClassVar[str] = "memory"
    kernels: ClassVar[tuple[str, ...]] = ("prompt", "token")

    ratio: float = setting(0.5, "share of the prompt's keys that is removed", "live", 0.0, 0.99, 0.05)
    cut: int = 0  # tokens of the text that are the prompt; 0: those of the first call
    layers_: int = field(default=0, init=False, repr=False, compare=False)
    whole_: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)
    kept_: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    ends_: Tensor | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def at_step(cls, step: int) -> dict:
        return {"ratio": min(round(1 - step / 100, 2), 0.99)}

    def worth(self, prompt: Prompt) -> Tensor:
        """The score of every key of one text, [1, G, L]; larger stays."""
        raise NotImplementedError

    def stay(self, layer: int, worth: Tensor) -> Tensor:
        """Which keys of a layer stay, bool [1, G, L], of their scores."""
        return evict(worth, self.ratio)

    def check(self, lm) -> None:
        self.layers_ = shape_of(lm)[0]
        self.whole_ = sees_all(lm.config, self.layers_)
        self.kept_.clear()

    def prefill(self, prompt: Prompt) -> None:
        """Choose the keys of every text of a prompt; a layer with a sliding window holds little and stays as it is."""
        if not self.whole_[prompt.layer]:
            return
        self.ends_ = ends_of(prompt, self.cut)
        kept = torch.ones_like(prompt.key[..., 0], dtype=torch.bool)  # [B, G, T]
        for text, (first, end) in enumerate(zip(prompt.first.tolist(), self.ends_.tolist(), strict=True)):
            with torch.no_grad():
                kept[text, :, first:end] = self.stay(prompt.layer, self.worth(prompt.part(text, first, end)))
        self.kept_[prompt.layer] = kept

    def keep(self, block: Block) -> Tensor | None:
        if not self.whole_[block.layer]:
            return None
        kept = self.kept_[block.layer]
        columns = block.columns.clamp(max=kept.shape[2] - 1)
        later = block.columns >= kept.shape[2]
        found = (kept[:, :, columns] | later).repeat_interleave(block.sharing, 1)  # [B, H, Tk]
        inside = block.rows < self.ends_[:, None]  # [B, n]: the prompt itself reads densely
        return found[:, :, None] | inside[:, None, :, None]

    def attend(self, call: Call) -> Attended:
        """The prompt by torch's kernel, after which the KV cache is compacted; tokens after it read what is left."""
        if not self.whole_[call.layer]:
            return read_all(call)
        if call.past == 0:
            if self.cut and bool((self.ends_ != call.query.shape[2]).any()):
                return Attended(None, MASKED, "The prompt ends inside this call.")
            done = read_all(call)
            if call.stored is not None:
                call.stored.compact(self.kept_[call.layer])
            return Attended(done.out, PROMPT, "The prompt reads itself densely; what it leaves is kept.")
        if call.stored is None or not call.stored.is_compact:
            return Attended(None, MASKED, "This KV cache holds every key: what was dropped is masked.")
        return Attended(call.stored.held.attend(call.query, call.scaling), STEP, "Tokens read what each head kept.")

    def cache(self, lm) -> CompactCache:
        return CompactCache(lm.config)


def ends_of(prompt: Prompt, cut: int) -> Tensor:
    """The place after the last token of each prompt, [B]. Errors: BadSetting for a prompt that comes in pieces."""
    length = prompt.query.shape[2]
    ends = prompt.first + cut if cut else torch.full_like(prompt.first, length)
    if int(ends.max()) > length:
        raise BadSetting(f"The prompt has {cut:,} tokens and the first call {length:,}: give the whole prompt at once.")
    return ends


def scores(kind: str, prompt: Prompt, window: int = 64) -> Tensor:
    """The worth of every key of a prompt by a rule of SCORES, [1, G, L]; `window` counts for `snapkv` only."""
    if kind != "expected_attention":
        return eviction_scores(kind, prompt.query, prompt.key, prompt.value, window, prompt.scoring)
    plain = unrotate(exact(prompt.query), prompt.module, prompt.tables)
    ahead = mean_rotation(prompt.tables, REACH)

    def turn(x: Tensor) -> Tensor:
        return x if ahead is None else turned(x, prompt.module, *(table.to(x) for table in ahead))

    return expected_attention(plain, prompt.key, prompt.value, turn, scoring=prompt.scoring)


def mean_rotation(tables: tuple[Tensor, Tensor] | None, reach: int) -> tuple[Tensor, Tensor] | None:
    """The mean of the tables (cos, sin) [1, T, D'] over the next `reach` positions, each [1, 1, D']; None without.

    From one position to the next every pair of dimensions turns by the same angle, which the tables show.
    """
    if tables is None:
        return None
    cos, sin = (table.double() for table in tables)
    size = (cos[:, -1:].square() + sin[:, -1:].square()).sqrt()
    angle = torch.atan2(sin, cos)
    step = angle[:, 1:2] - angle[:, :1] if angle.shape[1] > 1 else torch.zeros_like(angle[:, :1])
    ahead = angle[:, -1:] + step * torch.arange(1, reach + 1, device=cos.device)[:, None]
    return (ahead.cos().mean(1, keepdim=True) * size, ahead.sin().mean(1, keepdim=True) * size)
