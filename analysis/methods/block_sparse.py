"""Prompts read by blocks, of a map made once for every head: skip softmax, vertical-slash, FlexPrefill, XAttention."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declaration import field, fields_of
from ..errors import BadSetting
from ..kernels.blocks import (
    BLOCK,
    block_attention,
    crossed_blocks,
    fewest_reaching,
    in_blocks,
    largest,
    last_queries,
    map_by_rows,
    rises,
)
from ..kernels.parts import part
from ..kernels.pool import on_host
from ..kernels.scoring import Scoring
from ..seam.cache_checks import sees_all
from ..seam.calls import MASKED, Attended, Block, Call, Prompt, part_of, states_alone
from .base import Method, read_all
from .evicting import prompt_bounds

PROMPT = "kept blocks"


@dataclass
class Blockwise(Method):
    """Reads kept blocks of the prompt; tokens after it read everything. A subclass chooses them in `choose_blocks`."""

    saves: ClassVar[str] = "prefill"
    kernels: ClassVar[tuple[str, ...]] = ("prompt",)
    takes_sinks: ClassVar[bool] = True

    block: int = field(128, "queries and keys of a block", low=8, high=512)
    # Tokens of the text that are the prompt; 0: those of the first call.
    cut: int = 0

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
        self.whole_ = sees_all(lm)
        # layer -> of each text bool [1, H, n, n]
        self.maps_: dict[int, list[Tensor]] = {}

    def prefill(self, prompt: Prompt) -> None:
        """Estimate the map of each text; a layer with a sliding window reads little and stays dense."""
        if not self.whole_[prompt.layer]:
            return
        self.bounds_ = prompt_bounds(prompt, self.cut)
        with part("router"), torch.no_grad():
            texts = [part_of(prompt, text, *bounds) for text, bounds in enumerate(self.bounds_)]
            self.maps_[prompt.layer] = [self.block_map(text.query, text.key, text.scoring) for text in texts]

    def mask(self, block: Block) -> Tensor | None:
        if not self.whole_[block.layer] or block.first_row >= max(end for _, end in self.bounds_):
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
            out, _ = block_attention(*call.states, blocks, self.block, call.scaling, call.sink_logits)
        share = on_host(blocks.float().sum(), "kept blocks") / _causal_blocks(blocks)
        return Attended(out, PROMPT, f"{share:.0%} of the blocks are kept.")


@dataclass
class SkipSoftmax(Blockwise):
    """Scores of a prompt come in blocks, from left to right. A block is left out if in all of its rows the largest
    score lies far below the largest so far: its softmax and its values would change next to nothing.

    *Far* is the logarithm of `scale` by the length of the prompt, so a larger scale leaves more out. All scores are
    computed to know this: the gain is the softmax and the product with the values, and only in a kernel that skips them
    as it goes. Here the map is made first and the blocks are read afterwards; the time of both is counted. A block has
    128 queries, and the best of them decides for all, so a later query of a block can keep it for an earlier one.
    """

    title = "Skip softmax"
    paper = "Yuan et al., 2025 (BLASST), arXiv 2512.12087"
    budget_steps = {"scale": lambda step: round(10 ** (5 - step / 16), 4)}

    scale: float = field(
        100.0, "by the length of the prompt: the weight below which a block is left out", low=0.0, high=1e5, step=10.0
    )

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        # lambda = scale / T of the paper: the share of a key's weight that is thought worth a look
        edge = math.log(self.scale / q.shape[2]) if self.scale else -math.inf
        return map_by_rows(q, k, self.block, scoring, lambda scores: rises(scores, self.block) > edge)


# The first columns and the nearest diagonals, which are always kept.
COLUMNS, DIAGONALS = 30, 100


@dataclass
class VerticalSlash(Blockwise):
    """The last 64 queries of a prompt show which keys all queries read (columns), and at which distances they read
    (diagonals). Blocks that one of the strongest columns or diagonals crosses are read, the others not.

    The first 30 columns and the nearest 100 diagonals are always among them. The original gathers single columns; here
    whole blocks are read, so the same settings read more. By its authors' word it is slower than dense attention below
    about 10,000 tokens.
    """

    title = "Vertical-slash"
    paper = "Jiang et al., 2024 (MInference), arXiv 2407.02490"
    budget_steps = {
        "vertical": lambda step: round(COLUMNS * 2 ** (step / 11)),
        "slash": lambda step: round(DIAGONALS * 2 ** (step / 11)),
    }

    vertical: int = field(64, "columns that each head keeps", low=30, high=1 << 16)
    slash: int = field(256, "diagonals that each head keeps", low=100, high=1 << 16)
    queries: int = field(64, "last queries that are looked at", low=1, high=512)

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        # sums of weights, both [B, H, T]
        columns, diagonals = last_queries(q, k, self.queries, scoring)
        columns[..., :COLUMNS] = torch.inf
        diagonals[..., :DIAGONALS] = torch.inf
        return crossed_blocks(largest(columns, self.vertical), largest(diagonals, self.slash), self.block)


@dataclass
class FlexPrefill(Blockwise):
    """Each head reads as much of a prompt as holds the share `gamma` of the attention of its last block of queries.

    Where attention between means of blocks comes close to the true one, the head takes the best blocks by these means.
    Elsewhere it takes columns and diagonals, as vertical-slash does, but as many as the head needs: the budget follows
    the text.
    """

    title = "FlexPrefill"
    paper = "Lai et al., 2025 (FlexPrefill), arXiv 2502.20766"
    budget_steps = {"gamma": lambda step: max(step / 100, 0.1)}

    gamma: float = field(0.9, "share of the attention that is to be read", low=0.1, high=1.0, step=0.01)
    tau: float = field(
        0.1, "distance of the two estimates below which means of blocks decide", low=0.0, high=1.0, step=0.01
    )

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        pooled = scoring.scores(_block_means(q, self.block), _block_means(k, self.block))  # [B, H, n, n]
        count = pooled.shape[-1]
        future = torch.ones(count, count, dtype=torch.bool, device=q.device).triu(1)
        pooled = torch.softmax(pooled.masked_fill(future, -torch.inf), -1)  # [B, H, n, n]
        columns, diagonals = last_queries(q, k, self.block, scoring)
        true = in_blocks(columns, self.block).sum(-1)  # [B, H, n]
        # the root of the Jensen-Shannon divergence is a distance
        close = _divergence(pooled[:, :, -1], true / true.sum(-1, keepdim=True)).sqrt() < self.tau  # [B, H]
        lines = fewest_reaching(columns, self.gamma), fewest_reaching(diagonals, self.gamma)
        by_blocks = fewest_reaching(pooled.flatten(2), self.gamma).unflatten(2, (count, count))
        return torch.where(close[..., None, None], by_blocks, crossed_blocks(*lines, self.block))


def _block_means(x: Tensor, block: int) -> Tensor:
    """The mean of each block of x [B, heads, T, D], the last one over what it has: [B, heads, n, D]."""
    sums = F.pad(x, (0, 0, 0, -x.shape[2] % block)).unflatten(2, (-1, block)).sum(3)
    starts = torch.arange(0, x.shape[2], block, device=x.device)
    return sums / (x.shape[2] - starts).clamp(max=block).to(x)[:, None]


def _divergence(a: Tensor, b: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats of distributions [..., N]."""
    middle = (a + b) / 2
    return ((torch.xlogy(a, a) + torch.xlogy(b, b)) / 2 - torch.xlogy(middle, middle)).sum(-1).clamp(min=0)


@dataclass
class XAttention(Blockwise):
    """Scores are summed along the antidiagonals of small squares: every query and every key of a square takes part, and
    columns and diagonals both cross it. Each row of blocks reads the fewest blocks that hold the share `threshold` of
    these sums, the first block and its own.

    The estimate costs one part in `stride` of all scores.
    """

    title = "XAttention"
    paper = "Xu et al., 2025 (XAttention), arXiv 2503.16428"
    budget_steps = {"threshold": lambda step: max(step / 100, 0.1)}

    stride: int = field(8, "queries and keys of a square; must divide the block", low=1, high=64)
    threshold: float = field(0.9, "share of a row that is to be read", low=0.1, high=1.0, step=0.01)

    def check(self, lm: Any) -> None:
        super().check(lm)
        self._squares()

    def choose_blocks(self, q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
        squares, mean = self._squares(), replace(scoring, factor=scoring.factor / self.stride)
        # Keys side by side times queries side by side in the opposite order: one product sums each antidiagonal.
        q, k = (
            F.pad(x, (0, 0, 0, -x.shape[2] % self.stride)).unflatten(2, (-1, self.stride)) for x in (q, k)
        )  # [B, heads, T / stride, stride, D]
        q, k = q.flip(3).flatten(3), k.flatten(3)

        def judge(scores: Tensor) -> Tensor:
            share = torch.softmax(scores, -1).sum(-2)  # [..., squares]
            return fewest_reaching(in_blocks(share, squares).sum(-1), self.threshold)

        blocks = map_by_rows(q, k, squares, mean, judge)
        blocks[..., 0] = True
        return blocks

    def _squares(self) -> int:
        """Squares in a row of a block. Errors: BadSetting."""
        if self.block % self.stride:
            raise BadSetting(f"stride is {self.stride} and must divide the block of {self.block}.")
        return self.block // self.stride


BLOCK_RULES: dict[str, type[Blockwise]] = {
    "skip_softmax": SkipSoftmax,
    "vertical_slash": VerticalSlash,
    "flex_prefill": FlexPrefill,
    "xattention": XAttention,
}


@torch.no_grad()
def block_map(
    kind: str, q: Tensor, k: Tensor, block: int = BLOCK, scoring: Scoring | None = None, **settings: Any
) -> Tensor:
    """Which blocks each head keeps: bool [B, H, n, n], lower triangular, the diagonal always kept.

    A block is `block` queries by `block` keys, n = ceil(T / block). q [B, H, T, D], k [B, G, T, D], rotated; `scoring`
    how the layer makes scores of them, 1/sqrt(D) unless given; where an estimate is a mean of products, a soft cap is
    put on the mean. The kinds and their settings are the methods of these names. All of them look at the end of what
    they are given, or at whole blocks of queries: they are for a prompt that is there as a whole, and a later token
    changes what an earlier block reads. Errors: BadSetting for another kind or setting.
    """
    if kind not in BLOCK_RULES:
        raise BadSetting(f"There is no block map {kind!r}; there are: {', '.join(BLOCK_RULES)}.")
    names = [declared.name for declared in fields_of(BLOCK_RULES[kind]) if declared.name != "block"]
    if strange := sorted(set(settings) - set(names)):
        raise BadSetting(f"{kind} has no setting {strange[0]!r}; it has: {', '.join(names)}.")
    rule = BLOCK_RULES[kind](**settings)
    # A direct caller may have smaller blocks than the sliders of a page.
    rule.block = block
    prompt = states_alone(q, k, k, scoring)
    return rule.block_map(prompt.query, prompt.key, prompt.scoring)


def _causal_blocks(blocks: Tensor) -> float:
    """How many blocks of maps [B, H, n, n] lie on and below the diagonal."""
    return blocks.numel() // blocks.shape[-1] * (blocks.shape[-1] + 1) / 2
