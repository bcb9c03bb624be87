"""What passes between the seam and a method: a prompt, a call of one layer, a block of its scores, and what ran."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import BadSetting
from ..kernels import Plan
from ..kernels.pool import on_host
from ..kernels.scoring import Scoring, at_least_float32
from .cache import CompactLayer, GroupedLayer
from .entries import Beside
from .visible import Visible

# The reference: every visible pair is scored, and what is not read is masked.
MASKED = "masked blocks"
# Tables [B or 1, T, D'] that rotated queries and keys; None without.
CosSin = tuple[Tensor, Tensor] | None


@dataclass(frozen=True)
class Prompt:
    """The first call of one layer, for a method that decides once about a whole text."""

    layer: int
    query: Tensor  # [B, H, T, D], rotated
    key: Tensor  # [B, G, T, D], rotated
    value: Tensor  # [B, G, T, D]
    first: Tensor  # [B] place of the first real token; left padding comes before it
    module: Any  # the attention layer
    tables: CosSin
    scoring: Scoring
    visible: Visible | None = None  # None: causal
    now: int = 0  # position of the token that comes next; 0: as many as there are keys
    of_tokens: Tensor | None = None  # [B, T, ...] what `token_features` returned
    # int [1, G, L] of keys left of a longer text, -1 before those of a head with fewer; its last queries, all tokens
    places: Tensor | None = None

    @property
    def key_places(self) -> Tensor:
        """Places of the keys, int [1, G, L]."""
        heads, length = self.key.shape[1:3]
        everything = torch.arange(length, device=self.key.device).expand(1, heads, -1)
        return everything if self.places is None else self.places

    def begins(self) -> list[int]:
        """`first` as the host knows it. Without a mask texts begin at their first token; else the device is asked."""
        masked = self.visible is not None and self.visible.mask is not None
        return on_host(self.first, "first tokens") if masked else [0] * len(self.first)


def part_of(prompt: Prompt, text: int, start: int, stop: int) -> Prompt:
    """The tokens start..stop of one text, queries and keys in float32: bfloat16 is too coarse to rank keys by."""
    states = prompt.query, prompt.key, prompt.value
    query, key, value = (x[text : text + 1, :, start:stop].detach() for x in states)
    query, key = at_least_float32(query), at_least_float32(key)
    tables, visible = None, prompt.visible or Visible()
    if prompt.tables is not None:
        cos, sin = (x[min(text, len(x) - 1) :][:1, start:stop] for x in prompt.tables)
        tables = cos, sin
    of_text = [x if x is None else x[min(text, len(x) - 1), None] for x in (visible.mask, visible.bias)]
    mask, bias = (x if x is None else x[:, :, start:stop, start:stop] for x in of_text)
    visible = Visible(mask, bias, visible.sinks, visible.chosen)
    about = prompt.first.new_zeros(1), prompt.module, tables, prompt.scoring, visible
    of_tokens = None if prompt.of_tokens is None else prompt.of_tokens[text : text + 1, start:stop]
    return Prompt(prompt.layer, query, key, value, *about, of_tokens=of_tokens)


def states_alone(queries: Tensor, keys: Tensor, values: Tensor, scoring: Scoring | None) -> Prompt:
    """States without a layer, as a method sees those of one. Errors: BadSetting for shapes that do not fit."""
    fits = queries.shape[0] == keys.shape[0] and queries.shape[2:] == keys.shape[2:] and keys.shape == values.shape
    if not fits or queries.shape[1] % keys.shape[1]:
        raise BadSetting(
            f"Queries {list(queries.shape)}, keys {list(keys.shape)} and values {list(values.shape)} do not belong "
            "together: [B, H, L, D] and twice [B, G, L, D] are needed, G a divisor of H."
        )
    first = torch.zeros(len(queries), dtype=torch.long, device=queries.device)
    exact = at_least_float32(queries), at_least_float32(keys)
    return Prompt(0, *exact, values, first, None, None, scoring or Scoring.plain(queries))


@dataclass(frozen=True)
class Call:
    """One call of one layer, causal and without a mask, as a method's own kernel sees it."""

    layer: int
    query: Tensor  # [B, H, Tq, D]
    key: Tensor  # [B, G, Tk, D] of all tokens; of the new ones where the cache is sorted by group or compacted
    value: Tensor  # likewise
    scaling: float
    past: int  # tokens before the first query
    of_tokens: Tensor | None  # [B, past + Tq, ...] what `token_features` or `encode_tokens` returned
    # The layer's KV cache where the method decides its order.
    stored: GroupedLayer | CompactLayer | None
    # [H]: learned sinks, one more term of every sum, of a layer that has them and for a method that `takes_sinks`.
    sink_logits: Tensor | None = None

    @property
    def states(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value."""
        return self.query, self.key, self.value

    @property
    def needs_gradient(self) -> bool:
        """Whether a backward pass will go through this call: most kernels have none."""
        learned = (x for x in (self.query, self.sink_logits) if x is not None)
        return torch.is_grad_enabled() and any(x.requires_grad for x in learned)


@dataclass(frozen=True)
class Attended:
    """What a method's kernel computed."""

    out: Tensor | None  # [B, H, Tq, D]; None where the kernel cannot compute this call
    kernel: str
    why: str
    plan: Plan | None = None


@dataclass
class Block:
    """One block of n queries of one layer, as a method or a statistic sees it."""

    layer: int
    scores: Tensor  # [B, H, n, Tk] scaled, soft-capped logits; float32 where the model computes in less
    visible: Tensor  # bool, broadcastable to the scores: causal, no padding, inside the model's sliding window
    rows: Tensor  # [n] places of the queries
    columns: Tensor  # [Tk] places of the keys in the same numbering: a distance is rows[:, None] - columns
    first: Tensor  # [B] place of the first real token; left padding comes before it
    of_queries: Tensor | None = None  # [B, n, ...] what `token_features` or `encode_tokens` returned for the queries
    of_keys: Tensor | None = None  # [B, Tk, ...] and for the keys
    read: Tensor | None = None  # bool, broadcastable to the scores: what stood in the softmax, once that is known
    sharing: int = 1  # neighbouring query heads that share a key-value head
    scoring: Scoring | None = None
    sinks: Tensor | None = None  # [H]: a logit of each head in every softmax that belongs to no token, as in gpt-oss
    chosen: bool = False  # whether the model's own indexer chose what is visible
    corner: tuple[int, int] | None = None  # places of the first query and key, where the host knows them
    entries: Beside | None = None  # compressed entries, which stand in every softmax and are no tokens
    made: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)  # what `once` computed

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make()` returns, computed once a block: for what several hooks of a method need."""
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    @property
    def first_row(self) -> int:
        """The place of the first query."""
        return on_host(self.rows[0], "first row") if self.corner is None else self.corner[0]

    @property
    def first_column(self) -> int:
        """The place of the first key."""
        return on_host(self.columns[0], "first column") if self.corner is None else self.corner[1]

    def distances(self) -> Tensor:
        """[n, Tk]: how many tokens the key lies before the query."""
        return self.rows[:, None] - self.columns

    def near(self, window: int, sinks: int) -> Tensor:
        """bool [B or 1, 1, n, Tk]: the last `window` tokens, the token itself included, and the first of the text."""
        near = (self.distances() < window)[None, None]
        return near | (self.columns < self.first[:, None] + sinks)[:, None, None] if sinks else near

    def remembered(self) -> tuple[Tensor, Tensor]:
        """What a method remembers of the queries [B, n, ...] and of the keys [B, Tk, ...]."""
        assert self.of_queries is not None and self.of_keys is not None, "the method remembers nothing of its tokens"
        return self.of_queries, self.of_keys

    def queries_and_keys(self) -> tuple[Tensor, Tensor]:
        """Queries [B, H, n, D] and keys [B, G, Tk, D] in float32, where `encode_tokens` returned `stacked` ones."""
        heads = self.scores.shape[1]
        of_queries, of_keys = self.remembered()
        return of_queries[:, :, :heads].transpose(1, 2).float(), of_keys[:, :, heads:].transpose(1, 2).float()


def stacked(query: Tensor, key: Tensor) -> Tensor:
    """Queries [B, H, T, D] and keys [B, G, T, D] of the same tokens as rows of a token memory, [B, T, H + G, D]."""
    return torch.cat([query, key], 1).transpose(1, 2)


@dataclass
class Ran:
    """A kernel that a layer ran in one phase; `why` and `plan` are those of its last call."""

    layer: int
    # Prefill, decode, or continued: more text after a past one.
    phase: str
    kernel: str
    why: str
    plan: Plan | None = None
    calls: int = 0
