"""Focus: far tokens read each other only inside a learned group."""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting, NotFitted
from ..groups.gates import group_affinity, straight_through, top_groups
from ..groups.router import MEMBERSHIPS, FocusRouter
from ..kernels import Plan, plan, planned_attention
from ..kernels.biased import biased_attention
from ..kernels.members import apart, texts_of
from ..kernels.merge import with_sink_logits
from ..kernels.parts import part
from ..kernels.pool import on_host
from ..seam.cache import GroupedCache, GroupedLayer
from ..seam.calls import MASKED, Attended, Block, Call
from ..seam.layers import shape_of
from .base import Method, read_all

DECODE = "group-major cache"
GATED = "gate on the scores"


@dataclass
class Focus(Method):
    """Learned groups: a token reads the last `window` tokens, and farther back only tokens of its own groups.

    A router in each layer projects what enters the attention to 16 numbers and compares them with K centroids; each
    token joins its `top` best groups. *Causal* membership decides for every token by itself, with a balance frozen on
    calibration text. *Literal* membership balances over the whole text, as the paper writes it, and so lets the future
    in. *Prefix* membership balances over the tokens so far, anew for every token: no future, but slow. *Hard* reading
    skips all other pairs, as at inference; *soft* gates their scores, as in training (equation 2).
    A router may have been made for some layers alone; the others read everything. It may have groups of its own for
    every key-value head.
    Two warnings: a soft gate reads every pair, so it saves nothing; and with 2 top > K every two tokens share a group,
    so it is dense attention.
    """

    title = "Focus"
    paper = "Focus, sections 2 and 3.6, appendix D"
    exported_with = {"membership": "causal", "reading": "hard"}
    needs = "router"
    budgeted = "window"
    kernels = ("prompt", "token")
    takes_sinks = True

    router: FocusRouter | None = None
    top: int = field(1, "groups each token belongs to", low=1, high=64)
    window: int = field(128, "tokens that are always read, the token itself included", low=1, high=1 << 20)
    n_sink: int = field(0, "first tokens of the text that are always read (the paper has none)", low=0, high=64)
    membership: str = field("causal", "how groups are balanced", options=MEMBERSHIPS, future=("literal",))
    reading: str = field(
        "hard", "skip far pairs without a shared group, or gate them", options=("hard", "soft", "straight_through")
    )

    @classmethod
    def build(cls, router: FocusRouter | None = None, /, **settings: Any) -> Self:
        """The method with the memberships, window and sinks that `router` was made for, unless said otherwise."""
        made_for = {name: getattr(router, name) for name in ("top", "window", "n_sink")} if router is not None else {}
        return cls(router=router, **{**made_for, **settings})

    def check(self, lm: Any) -> None:
        if self.router is None:
            raise NotFitted("Focus has no router yet: call `fit` on some text, or load a trained router.")
        self.router.check(shape_of(lm)[0], lm.config.get_text_config().hidden_size)
        if (heads := self.router.heads) not in (1, shape_of(lm)[2]):
            raise BadSetting(f"The router is for {heads} key-value heads, and the model has others: train one for it.")
        if self.top > (groups := self.router.K):
            raise BadSetting(f"top is {self.top} and the router has {groups} groups: choose at most {groups}.")
        # once: an accelerator would be waited for in every layer
        if not all(on_host(numbers.isfinite().all(), "finite") for numbers in self.router.state_dict().values()):
            raise BadSetting("The router holds NaN or infinity, so it is damaged: load or fit another one.")
        self.router.to(lm.device)

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> Tensor | None:
        """Group memberships of the tokens, [B, T, K], or [B, T, G, K] of each key-value head: bool when hard, the soft
        assignment otherwise; None in a layer without groups."""
        if not self.groups_in(layer):
            return None
        if self.membership != "causal" and not_padding is None:
            over = {"literal": "the whole text", "prefix": "all tokens so far"}[self.membership]
            raise BadSetting(
                f"{self.membership.capitalize()} membership balances groups over {over}, so it cannot decode token by "
                "token: use causal membership, or generate without the KV cache."
            )
        assert self.router is not None, "check refuses a method without one"
        with part("router"):
            if not_padding is None and hidden.shape[:2] == (1, 1) and self.reading == "hard":
                return self.router.members_of_token(layer, hidden, self.top)
            groups = self.router.soft(layer, hidden, not_padding, self.membership)
            if self.reading == "straight_through":
                return straight_through(groups, self.top)
            return groups if self.reading == "soft" else top_groups(groups, self.top)

    def groups_in(self, layer: int) -> bool:
        """Whether the tokens of a layer are in groups."""
        return self.router is None or layer in self.router.grouped

    def scores(self, block: Block) -> Tensor:
        if self.reading == "hard" or not self.groups_in(block.layer):
            return block.scores
        assert self.router is not None and block.of_queries is not None and block.of_keys is not None
        affinity = _affinity(block.of_queries, block.of_keys, block.scores.shape[1])
        always = block.near(self.window, self.n_sink)
        return torch.where(always, block.scores, self.router.gate(block.scores, affinity).to(block.scores))

    def mask(self, block: Block) -> Tensor | None:
        if self.reading != "hard" or not self.groups_in(block.layer):
            return None
        assert block.of_queries is not None and block.of_keys is not None, "token_features gave the groups"
        shared = _affinity(block.of_queries.float(), block.of_keys.float(), block.scores.shape[1]) > 0.5
        return shared | block.near(self.window, self.n_sink)

    def attend(self, call: Call) -> Attended:
        """Hard reading: grouped attention over a text, a group-major cache for a token after it. Soft reading of a
        text, and any with a gradient: the gate acts on the scores of all heads alike.
        """
        if not self.groups_in(call.layer):
            return read_all(call)
        members = call.of_tokens
        assert members is not None, "token_features gave the groups of all tokens"
        if self.reading != "hard" or call.needs_gradient:
            if call.past:
                return Attended(None, MASKED, f"{self.reading} reading has a kernel for whole texts only.")
            return Attended(
                self._gated(call, members), GATED, "The gate is the same for all heads, and has a gradient."
            )
        if call.past == 0:
            out, chosen = self._grouped(call, members)
            if isinstance(call.stored, GroupedLayer):
                with part("sort"):
                    call.stored.sort(members, self.window, self.n_sink, chosen.sizes)
            return Attended(out, f"{chosen.kernel} ({chosen.backend})", chosen.why, chosen)
        if not isinstance(call.stored, GroupedLayer):
            return Attended(None, MASKED, "This layer's KV cache is not sorted by group.")
        if call.query.shape[2] > 1:
            return Attended(None, MASKED, "Several tokens follow a past that is sorted by group.")
        call.stored.sort(members, self.window, self.n_sink)
        out = call.stored.attend(call.query, call.scaling, call.sink_logits)
        return Attended(out, DECODE, "One token reads its groups.")

    @property
    def kv_cache(self) -> type[GroupedCache] | None:
        """Sorted by group, where a token's groups are known when it comes."""
        return GroupedCache if self.reading == "hard" and self.membership == "causal" else None

    def _grouped(self, call: Call, members: Tensor) -> tuple[Tensor, Plan]:
        """[B, H, T, D] of a whole text, and what ran. Heads with groups of their own are texts of their own."""
        q, k, v = (apart(x, members) for x in call.states)
        chosen = plan(texts_of(members), self.window, q.shape[1], q.shape[-1], q.dtype, q.device)
        together = None if members.dim() == 4 else call.sink_logits
        out, lse = planned_attention(chosen, q, k, v, call.scaling, self.n_sink, together)
        out, lse = out.reshape(*call.query.shape[:3], -1), lse.reshape(call.query.shape[:3])
        if members.dim() == 4 and call.sink_logits is not None:
            out, lse = with_sink_logits(out, lse, call.sink_logits)
        return out, chosen

    def _gated(self, call: Call, members: Tensor) -> Tensor:
        """[B, H, T, D]: a whole text through the gate, or with hard reading the mask, block by block, the heads that
        share their groups together."""
        router, hard = self.router, self.reading == "hard"
        assert router is not None, "check refuses a method without one"
        multiply = not hard and router.settings.gate != "log"
        places = torch.arange(call.query.shape[2], device=call.query.device)

        def gate(groups: Tensor, start: int, stop: int) -> Tensor:
            affinity = group_affinity(groups[:, start:stop], groups[:, :stop])
            if hard:
                gated = torch.zeros_like(affinity).masked_fill(affinity < 0.5, float("-inf"))
            else:
                gated = router.gate(affinity.new_tensor(float(multiply)), affinity)
            keys = places[:stop]
            near = (places[start:stop, None] - keys < self.window) | (keys < self.n_sink)
            return gated.masked_fill(near, float(multiply))

        heads = members.shape[2] if members.dim() == 4 else 1
        groups = members.unbind(2) if heads > 1 else (members,)
        sinks = [None] * heads if call.sink_logits is None else call.sink_logits.chunk(heads)
        states = (x.chunk(heads, 1) for x in call.states)
        parts = [
            biased_attention(q, k, v, of_head, gate, call.scaling, multiply, own)
            for q, k, v, of_head, own in zip(*states, groups, sinks, strict=True)
        ]
        return torch.cat(parts, 1) if heads > 1 else parts[0]


def _affinity(queries: Tensor, keys: Tensor, heads: int) -> Tensor:
    """Affinity of groups [B, n, K] and [B, Tk, K] -> [B, 1, n, Tk]; with groups [..., G, K] of every query head."""
    if queries.dim() == 3:
        return group_affinity(queries, keys)[:, None]
    return group_affinity(*(x.transpose(1, 2).repeat_interleave(heads // x.shape[2], 1) for x in (queries, keys)))
