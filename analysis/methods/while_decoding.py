"""Eviction that goes on while text is written: the KV cache is cut to a budget again and again."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting
from ..kernels.ragged import Ragged
from ..seam.cache import CompactLayer
from ..seam.calls import Attended, Block, Call, Prompt
from ..seam.held import NEVER, LastQueries, gathered, places_held
from ..seam.layers import shape_of
from ..seam.visible import Visible
from .evicting import Evicting

COUNTED, PROTECTED = "counted", "protected"
KEYS, KILOBYTES = "keys", "kilobytes"


@dataclass
class WhileDecoding(Evicting):
    """With a `budget` the cache is cut to so many keys of each head when the prompt has been read, and again after
    every `every` tokens, by the same score over what is held and the last queries."""

    budget: int = field(
        0, "what the cache holds at most, also while text is written; 0: the prompt alone is cut", low=0, high=1 << 24
    )
    unit: str = field(KEYS, "what the budget counts: keys of a head, or kilobytes in all", options=(KEYS, KILOBYTES))
    every: int = field(128, "tokens that are written between two cuts to the budget", low=1, high=4096)
    prompt_keys: str = field(
        COUNTED, "under a budget: keys of the prompt count, or all stay beside it", options=(COUNTED, PROTECTED)
    )
    # A key that stays whatever its score, under a budget: layer, key-value head, place in the text.
    put_back: tuple[int, int, int] | None = None

    @property
    def scoring_queries(self) -> int:
        """How many of the last queries a cut while text is written looks at: they are remembered.

        There `key_scores` is shown the keys that are held, at `prompt.places`, and these queries.
        """
        return self.every

    def removed(self, layer: int, length: int) -> float:
        """The share of a layer's `length` keys that is removed."""
        # int(length * (1 - removed)) is then the budget
        return max(0.0, 1 - (self.keys_ + 0.5) / length) if self.budget else super().removed(layer, length)

    def check(self, lm: Any) -> None:
        super().check(lm)
        # layer -> int32 [B, G, T]: the place of the first query that does not find the key
        self.left_: dict[int, Tensor] = {}
        self.recent_: dict[int, LastQueries] = {}
        self.spare_ = self.every if self.budget else 0
        if self.budget and self.storage != "full":
            raise BadSetting(
                "The KV cache packs keys by the block, and cuts to a budget would pack what is left again and again: "
                "choose storage full, or leave the budget at 0."
            )
        _, _, kv_heads, size = shape_of(lm)
        of_place = sum(self.whole_) * kv_heads * 2 * size * lm.dtype.itemsize
        self.keys_ = self.budget if self.unit == KEYS else (self.budget << 10) // of_place
        if self.budget and not self.keys_:
            least = -(-of_place // 1024)
            raise BadSetting(
                f"A budget of {self.budget:,} kilobytes holds no key of each head: give {least:,} at least."
            )

    @property
    def remembered_bytes(self) -> int:
        """Of what cuts to the budget look at beside the cache."""
        return sum(recent.nbytes for recent in self.recent_.values())

    def chosen(self, prompt: Prompt) -> Tensor:
        if self.budget and self.prompt_keys == PROTECTED:
            return torch.ones_like(prompt.key[..., 0], dtype=torch.bool)
        return self.kept_keys(prompt.layer, self._put_back(prompt, self.key_scores(prompt)))

    def prefill(self, prompt: Prompt) -> None:
        """Choose the keys of every text of a prompt; under a budget, go on to what comes behind its cut."""
        super().prefill(prompt)
        if not self.budget or not self.whole_[prompt.layer]:
            return
        visible = prompt.visible or Visible()
        if visible.bias is not None or visible.chosen:
            raise BadSetting(
                "This model adds numbers to its scores or chooses keys by an indexer of its own, so what its last "
                "queries read of the keys that are held cannot be made anew: leave the budget at 0."
            )
        stays = self.kept_[prompt.layer]
        self.left_[prompt.layer] = torch.full_like(stays, NEVER, dtype=torch.int32)
        for text, (_, end) in enumerate(self.bounds_):
            self.left_[prompt.layer][text].masked_fill_(~stays[text], end)
        self.recent_[prompt.layer] = LastQueries(self.scoring_queries)
        self.follow(prompt)

    def follow(self, prompt: Prompt) -> None:
        """See a later call of a layer as `prefill` sees the first one: the seam calls this where a method has it, with
        the keys and values that the KV cache hands over: all, or the new ones where it was compacted. Remember the last
        queries; where every key is there, choose at each cut to the budget."""
        if not self.budget or not self.whole_[prompt.layer]:
            return
        recent = self.recent_[prompt.layer]
        recent.put(prompt)
        # else the cache holds what is left, and `attend` cuts it
        if prompt.key.shape[2] != prompt.now:
            return
        for text, (first, end) in enumerate(self.bounds_):
            for at in self._cuts(end, prompt.now - prompt.query.shape[2], prompt.now):
                places = places_held(self._left(prompt.layer, at)[text, :, first:at])
                states = gathered(places, prompt.key[text, :, first:], prompt.value[text, :, first:])
                self._cut(prompt.layer, text, at, *states)
        recent.trim()

    def _cuts(self, end: int, past: int, now: int) -> list[int]:
        """After how many tokens of the text the cache is cut, of more than `past` and up to `now`; a prompt ends at
        `end`."""
        done = max(0, past - end) // self.every
        return list(range(end + (done + 1) * self.every, now + 1, self.every))

    def _left(self, layer: int, length: int) -> Tensor:
        """`left_` of a layer, with room for `length` tokens."""
        more = max(0, length - self.left_[layer].shape[2])
        self.left_[layer] = F.pad(self.left_[layer], (0, more), value=NEVER)
        return self.left_[layer]

    @torch.no_grad()
    def _cut(self, layer: int, text: int, now: int, keys: Tensor, values: Tensor) -> Tensor:
        """Cut what a text holds in a layer after `now` tokens, keys and values [1, G, n, D]; which stay, bool
        [1, G, n]."""
        first, end = self.bounds_[text]
        left = self._left(layer, now)[text, :, first:now]
        places = places_held(left)[None]  # [1, G, n]
        prompt = self.recent_[layer].looking_at(text, (first, now), keys, values, places)
        inside = (places >= 0) & (places < end - first) & (self.prompt_keys == PROTECTED)
        free = (places >= 0) & ~inside
        scores = self._put_back(prompt, self.key_scores(prompt).masked_fill(~free, -torch.inf))
        stays = self.kept_keys(layer, scores) & free | inside
        head, slot = (~stays & free)[0].nonzero(as_tuple=True)
        left[head, places[0, head, slot]] = now
        return stays

    def _put_back(self, prompt: Prompt, scores: Tensor) -> Tensor:
        """The scores [1, G, L], that of the key that was put back the largest there is."""
        if self.put_back is not None and self.put_back[0] == prompt.layer:
            _, head, place = self.put_back
            scores[:, head] = scores[:, head].masked_fill(prompt.key_places[:, head] == place, torch.inf)
        return scores

    def mask(self, block: Block) -> Tensor | None:
        if not self.budget or not self.whole_[block.layer]:
            return super().mask(block)
        left = self.left_[block.layer]
        later = block.columns >= left.shape[2]
        left = left[:, :, block.columns.clamp(max=left.shape[2] - 1)].masked_fill(later, NEVER)  # [B, G, Tk]
        return left.repeat_interleave(block.sharing, 1)[:, :, None] > block.rows[:, None]

    def attend(self, call: Call) -> Attended:
        """As of any method that evicts; the cache is cut to the budget wherever that is due between new tokens."""
        stored = call.stored
        held = stored.held if isinstance(stored, CompactLayer) else None
        if not self.budget or not self.whole_[call.layer] or not isinstance(held, Ragged):
            return super().attend(call)
        assert isinstance(stored, CompactLayer), "it holds what is left"
        end = call.past + call.query.shape[2]
        cuts = self._cuts(self.bounds_[0][1], call.past, end)
        if not cuts:
            return super().attend(call)
        # they came in at once, and those behind a cut must not be there yet
        held.take_back(end - call.past)
        done, outs = None, []
        for start, stop in pairwise(sorted({call.past, *cuts, end})):
            rows = slice(start - call.past, stop - call.past)
            query, key, value = (x[:, :, rows] for x in call.states)
            assert isinstance(stored.held, Ragged), "it stays compact"
            stored.held.put(key, value)
            done = super().attend(replace(call, query=query, key=key, value=value, past=start))
            outs.append(done.out)
            if stop in cuts:
                self._cut_held(call.layer, stop, stored)
        assert done is not None, "there are new tokens"
        return replace(done, out=torch.cat([out for out in outs if out is not None], 2))

    def _cut_held(self, layer: int, now: int, stored: CompactLayer) -> None:
        """Cut what a compacted cache holds of every text after `now` tokens."""
        assert isinstance(stored.held, Ragged), "it is compact"
        keys, values = stored.held.in_order()
        stays = torch.zeros(keys.shape[:3], dtype=torch.bool, device=keys.device)
        for text in range(len(keys)):
            # of one that holds fewer than the others
            size = places_held(self._left(layer, now)[text, :, :now]).shape[1]
            of_text = (x[text : text + 1, :, x.shape[2] - size :] for x in (keys, values))
            stays[text, :, stays.shape[2] - size :] = self._cut(layer, text, now, *of_text)[0]
        stored.compact(stays, spare=self.spare_)
