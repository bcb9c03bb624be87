"""Calibrated Sparse Attention: every head reads the keys of largest score, as many as calibration gave it."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting, NotFitted
from ..kernels.evicted import Evicted, Heads
from ..kernels.narrow import STORAGES
from ..kernels.topk import smallest_kept, topk_attention
from ..metrics.budgets import FLOOR
from ..runs.stored import POLICY_FORMAT
from ..seam.cache import CompactCache, CompactLayer, GrowingCache
from ..seam.calls import MASKED, Attended, Block, Call
from ..seam.layers import shape_of
from ..seam.rounded import Rounded
from .base import Method

NO_CAP = 1 << 20
PREFILL, STEP, EVICTED = "top-k of all scores", "gathered top-k", "evicting cache"
# Queries of a prompt that are scored at once where keys are evicted.
ROWS = 128


@dataclass
class CSA(Method):
    """Each query of a head keeps its min(budget, cap) keys of largest score and drops the rest. Calibration gives every
    head its budget: how many keys hold 90% of its attention.

    The budgets and the cap are a policy. All keys are scored to find the largest, so the arithmetic of the scores stays
    and only reads of values are saved: it cannot be faster than dense attention until a text is long. Keys that tie
    with the last one all stay. *Eviction* is a variant that the paper only proposes: a head that holds more keys than
    its budget drops the one with the least attention so far for good, and the newest half is safe. The KV cache itself
    then shrinks, and a later token can miss what was dropped. A key that several heads share is freed when none of them
    holds it any more. With a *storage* of few bits keys and values are read as such a cache would store them, but for
    the last ones: that shows what both lose together, and the cache here stays in full.
    """

    title = "Calibrated Sparse Attention"
    paper = "Calibrated Sparse Attention, steps 1 to 4 (eviction: a composition it only proposes)"
    exported_with = {"eviction": "never", "storage": "full"}
    needs = "policy"
    budgeted = "total"  # of its policy, not a field
    kernels = ("prompt", "token")
    kernel_scores = 1.7
    takes_sinks = True
    ceiling = True

    budgets: tuple[int, ...] | None = None
    shape: tuple[int, int] | None = None
    cap: int = field(NO_CAP, "most keys that any head keeps of a query", low=1, high=NO_CAP)
    eviction: str = field(
        "never",
        "whether a head that holds more keys than its budget drops some for good",
        options=("never", "at the budget"),
    )
    storage: str = field("full", "in how many bits keys and values are read", options=("full", "int8", "int4", "int2"))

    def __post_init__(self) -> None:
        super().__post_init__()
        # what was evicted is not looked at
        self.ceiling = self.eviction == "never"
        if self.budgets is not None:
            self.budgets = tuple(_whole(value) for value in self.budgets)

    @classmethod
    def build(cls, policy: str | bytes | dict | Sequence[int] | None = None, /, **settings: Any) -> Self:
        """The method of a policy: JSON text, L * H budgets layer by layer and last the cap, or an object with these as
        "policy" and with "layers" and "heads". `settings` may give another cap. Errors: BadSetting for anything else.
        """
        if policy is None:
            return cls(**settings)
        if isinstance(policy, str | bytes):
            try:
                policy = json.loads(policy)
            except (ValueError, RecursionError):
                raise BadSetting("The policy is no JSON: give a list of L * H + 1 whole numbers.") from None
        numbers: Any = policy
        shape: tuple[int, int] | None = None
        if isinstance(policy, dict):
            if (version := policy.get("format", POLICY_FORMAT)) != POLICY_FORMAT:
                raise BadSetting(f"The policy has format {str(version)[:20]}, and format {POLICY_FORMAT} is read here.")
            if (method := policy.get("method", "csa")) != "csa":
                raise BadSetting(f"The file is a setting of {str(method)[:20]}, and budgets of csa are read here.")
            numbers, layers, heads = (policy.get(name) for name in ("policy", "layers", "heads"))
            if not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in (layers, heads)):
                raise BadSetting("The policy does not say for how many layers and heads it is: add both numbers.")
            shape = policy["layers"], policy["heads"]
        if not isinstance(numbers, list | tuple) or len(numbers) < 2:
            raise BadSetting("The policy holds no list of L * H + 1 whole numbers, budgets and a cap: give one.")
        if shape and len(numbers) != shape[0] * shape[1] + 1:
            raise BadSetting(
                f"The policy has {len(numbers)} numbers, and {shape[0]} layers of {shape[1]} heads need "
                f"{shape[0] * shape[1] + 1}: a budget for each head and a cap."
            )
        *budgets, cap = map(_whole, numbers)
        return cls(budgets=tuple(budgets), shape=shape, **{"cap": min(cap, NO_CAP), **settings})

    def to_policy(self) -> dict:
        """The policy as an object that `build` and other programs read: `layers heads policy`."""
        assert self.shape is not None, "a policy is of a model"
        return {"layers": self.shape[0], "heads": self.shape[1], "policy": [*self._budgets, self.cap]}

    @property
    def _budgets(self) -> tuple[int, ...]:
        if self.budgets is None:
            raise NotFitted("CSA has no policy yet: calibrate it on some text, or load a policy.")
        return self.budgets

    def check(self, lm: Any) -> None:
        budgets, model_shape = self._budgets, shape_of(lm)[:2]
        if (self.shape or model_shape) != model_shape or len(budgets) != model_shape[0] * model_shape[1]:
            policy_shape = f"{self.shape[0]} layers of {self.shape[1]} heads" if self.shape else f"{len(budgets)} heads"
            raise BadSetting(
                f"The policy was made for {policy_shape} and this model has {model_shape[0]} layers of "
                f"{model_shape[1]} heads: calibrate on this model."
            )
        self.shape = model_shape
        self.held_: dict[int, Heads] = {}

    @property
    def budget_heads(self) -> int:
        """Heads of all layers, which share out the total of a policy."""
        return len(self._budgets)

    @property
    def budget_limits(self) -> tuple[int, int]:
        """Of the total."""
        return FLOOR * self.budget_heads, NO_CAP * self.budget_heads

    @property
    def kv_cache(self) -> type[GrowingCache] | None:
        """One that frees evicted keys, which are masked in any other."""
        return GrowingCache if self.eviction == "never" else CompactCache

    @property
    def reads_of_attended(self) -> float:
        """The values of those that are kept; a cache that evicts holds no other keys."""
        return 0.5 if self.eviction == "never" else 1.0

    @property
    def reads_of_visible(self) -> float:
        """Every key is scored, where none was evicted."""
        return 0.5 if self.eviction == "never" else 0.0

    def counts(self, layer: int) -> list[int]:
        """How many keys each head of a layer keeps, [H]."""
        assert self.shape is not None, "check noted the model's"
        heads = self.shape[1]
        return [min(budget, self.cap) for budget in self._budgets[layer * heads : (layer + 1) * heads]]

    def mask(self, block: Block) -> Tensor:
        if self.eviction != "never":
            return self._follow_evicted(block)
        scores = block.scores.detach().float().masked_fill(~block.visible, -math.inf)
        return scores >= smallest_kept(scores, self.counts(block.layer))

    def attend(self, call: Call) -> Attended:
        """Any number of queries after any past, each over the largest of its scores."""
        if self.storage != "full":
            return Attended(None, MASKED, "Keys and values in few bits are read by the reference.")
        if self.eviction != "never":
            return self._evicting(call)
        if call.needs_gradient:
            return Attended(None, MASKED, "The top-k kernel has no gradient.")
        counts = self.counts(call.layer)
        out, read_counts = topk_attention(*call.states, counts, call.scaling, call.past, call.sink_logits)
        self.note(call, read_counts)
        step = call.query.shape[2] == 1 and call.past > 0
        why = "One token gathers the values it keeps." if step else "All scores are computed, block by block."
        return Attended(out, STEP if step else PREFILL, why)

    def _evicting(self, call: Call) -> Attended:
        """A prompt and the tokens after it, each key freed when it is dropped; in another cache all is masked."""
        stored = call.stored
        compact = isinstance(stored, CompactLayer) and (stored.is_compact or not call.past)
        if call.sink_logits is not None or call.needs_gradient:
            return Attended(None, MASKED, "Beside learned sinks, and with a gradient, what was dropped is masked.")
        if not compact:
            return Attended(None, MASKED, "This KV cache holds every key: what was dropped is masked.")
        assert isinstance(stored, CompactLayer), "told above"
        if isinstance(stored.held, Evicted):
            return Attended(stored.held.attend(call.query, call.scaling), EVICTED, "Tokens read what each head holds.")
        heads, counts = Heads(*call.query.shape[:2]), self.counts(call.layer)
        query, key, value = call.query.float(), call.key.float(), call.value.float()
        sharing = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(sharing, 1), value.repeat_interleave(sharing, 1)
        places, out = torch.arange(key.shape[2], device=key.device), torch.empty_like(query)
        for rows in places.split(ROWS):
            scores = query[:, :, rows] @ key.mT * call.scaling
            held = heads.follow(scores, places <= rows[:, None], int(rows[0]), 0, counts)
            out[:, :, rows] = scores.masked_fill(~held, -math.inf).softmax(-1) @ value
        stored.follow(heads, counts)
        return Attended(out.to(call.query), EVICTED, "A token reads what its head holds; what it dropped is freed.")

    def rounded(self, layer: int, key: Tensor, value: Tensor) -> Rounded | None:
        storage = STORAGES.get(self.storage)
        if storage is None:
            return None
        begins = torch.zeros(len(key), dtype=torch.long)
        return Rounded.of(key, value, torch.ones_like(key[..., 0], dtype=torch.bool), begins, begins, storage)

    def note(self, call: Call, kept: Tensor) -> None:
        """Called with how many keys each query read, int32 [B, H, Tq]; a study may count them."""

    def _follow_evicted(self, block: Block) -> Tensor:
        """bool [B, H, n, Tk]: what each query still finds in the cache; the blocks of a text come in order."""
        first = int(block.rows[0])
        if first == 0 or block.layer not in self.held_:
            self.held_[block.layer] = Heads(*block.scores.shape[:2])
        counts = self.counts(block.layer)
        scores = block.scores.detach()
        return self.held_[block.layer].follow(scores, block.visible, first, int(block.columns[0]), counts)


def _whole(value: object) -> int:
    """A budget or cap. Errors: BadSetting for anything but a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadSetting(f"A policy holds whole numbers from 1, and {str(value)[:20]} is none.")
    return value
