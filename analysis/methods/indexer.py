"""Learned indexers as a method: DSA, QSA, M3, SeerAttention, MoBA and a low-rank form, fitted to a frozen model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declaration import field
from ..errors import NotFitted
from ..fitted import Fitted
from ..indexers.base import Features, Inputs
from ..indexers.reading import inputs_of, targets
from ..indexers.sizes import Sizes
from ..indexers.state import packed, unpacked
from ..kernels.blocks import in_blocks
from ..kernels.chosen import best_units, chosen_attention, runs
from ..kernels.gathered import gathered_attention
from ..kernels.parts import part
from ..seam.cache import GrowingCache
from ..seam.calls import MASKED, Attended, Block, Call, CosSin, Prompt
from ..seam.layers import shape_of
from .base import Method

STEP, PROMPT = "gathered keys", "chosen keys"
# Queries of a prompt that choose at once, and scores of a head of their indexer.
ROWS, SCORES = 256, 1 << 19
KINDS = ("dsa", "glm", "qsa", "m3", "seer", "moba", "low_rank")
# How `fit` trains, and the kinds that it makes; glm is dsa but for the order of its sizes.
TRAINING: dict[str, Any] = {"queries": 128, "steps": 300, "rate": 3e-3}
FITTED = ("dsa", "qsa", "m3", "seer", "moba", "low_rank")


@dataclass
class LearnedIndexer(Method):
    """A query reads the last `window` tokens, the first `n_sink`, and of the rest the `keys` that an indexer scores
    highest: small queries and keys of its own, which are cached beside the model's. The softmax over them is exact.

    The indexers of DeepSeek-V3.2 (dsa, and glm with other pairs in its rotation), Qwen4-Exp (qsa) and MiniMax-M3 (m3),
    SeerAttention-R's gate (seer), MoBA's means (moba) and a low-rank form as a control, fitted after the fact to the
    attention of the frozen model. Kinds with blocks read whole ones, and their own block. One selection serves a layer
    (dsa, qsa, low_rank), a key-value group (m3, seer) or a head (moba). Every query chooses for itself: on a processor
    with a C++ compiler those of a prompt read what they chose, elsewhere they run as a masked pass, which saves
    nothing; each token after it gathers what it chose.
    """

    title = "Indexer"
    paper = "DeepSeek-V3.2 (DSA), SeerAttention-R, MoBA; Qwen4-Exp and MiniMax-M3 as transformers has them"
    needs = "indexers"
    budgeted = "keys"
    kernels = ("prompt", "token")
    takes_sinks = True

    fitted: Fitted | None = None
    kind: str = field("dsa", "the indexer", options=KINDS)
    keys: int = field(64, "keys that an indexer chooses, in whole blocks", low=1, high=1 << 20)
    window: int = field(64, "tokens that are always read, the token itself included", low=1, high=1 << 20)
    n_sink: int = field(4, "first tokens of the text that are always read", low=0, high=64)

    @classmethod
    def build(cls, state: Fitted | None = None, /, **settings: Any) -> Self:
        """With these fitted indexers; the first kind that was fitted unless said otherwise."""
        kinds = list((state.about.get("indexers") or {}) if state else {})
        usual = {"kind": kinds[0]} if kinds and cls.kind not in kinds else {}
        return cls(fitted=state, **{**usual, **settings})

    @property
    def kv_cache(self) -> type[GrowingCache]:
        """One whose steps copy no key."""
        return GrowingCache

    @property
    def reads_of_visible(self) -> float:
        """The indexer's own key of each token, by the size of the layer's key and value."""
        return self.share_ if hasattr(self, "share_") else 0.0

    def fit(self, model: Any, windows: Tensor, kinds: Sequence[str] = FITTED) -> Self:
        """Fit `kinds` to the attention of the model on windows [n, T], at keys that the window does not reach."""
        near = min(self.window, windows.shape[1] // 4)
        sizes = Sizes(min_distance=near, **TRAINING)
        fittings = targets(model, windows.cpu().numpy(), {kind: kind for kind in kinds}, sizes)
        self.fitted = packed({place: fitting.fit() for place, fitting in fittings.items()})
        return self

    def check(self, lm: Any) -> None:
        if self.fitted is None:
            raise NotFitted("No indexer was fitted for this model: run `route --kinds dsa` or `fit-method indexer`.")
        layers, heads, kv_heads, dim = shape_of(lm)
        self.fitted.to(lm.device)
        self._indexers, sizes = unpacked(self.fitted, self.kind, layers)
        self.share_ = sizes.cached(self.kind, kv_heads, dim) / (2 * 2 * dim * kv_heads)
        self._begins: list[int] = []
        # Shapes of a token's features, by part.
        self._shapes: list[torch.Size] = []

    def prefill(self, prompt: Prompt) -> None:
        """Where each text begins."""
        self._begins = prompt.begins()

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> Tensor | None:
        """[B, T, ...]: an indexer's query, weights and key of each token, of kinds that read hidden states."""
        if self._indexers[layer].reads:
            return None
        return torch.stack([self._packed(layer, Inputs(text.detach().double())) for text in hidden])

    def encode_tokens(
        self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin
    ) -> Tensor | None:
        """The same of kinds that read the layer's own queries and keys."""
        reads = self._indexers[layer].reads
        if not reads:
            return None
        texts, hidden = [], query.new_zeros(query.shape[2], 0)
        for text in range(len(query)):
            of_text = None if tables is None else tuple(x[min(text, len(x) - 1), None] for x in tables)
            queries, keys = (x[text : text + 1].detach() for x in (query, key))
            texts.append(self._packed(layer, inputs_of(reads, hidden, queries, keys, module, of_text)))
        return torch.stack(texts)

    @torch.no_grad()
    def mask(self, block: Block) -> Tensor:
        of_queries, of_keys = block.remembered()
        near = block.near(self.window, self.n_sink)
        visible = block.visible.expand(len(of_keys), -1, -1, -1)[:, 0]  # [B, n, Tk]
        read = []
        for text, first in enumerate(self._begins):
            free = visible[text] & ~near[min(text, len(near) - 1), 0]
            places = block.rows - first, block.first_column - first
            read.append(self._chosen(block.layer, of_queries[text], of_keys[text], *places, visible[text], free))
        heads = block.scores.shape[1]
        return near | torch.stack([chosen.repeat_interleave(heads // len(chosen), 0) for chosen in read])

    def attend(self, call: Call) -> Attended:
        """Every query of a text reads what it chose; a token after it gathers that."""
        if call.needs_gradient:
            return Attended(None, MASKED, "Neither chosen nor gathered keys have a gradient.")
        assert call.of_tokens is not None, "every token has features"
        if call.query.shape[2] > 1:
            if not runs(call.query):
                return Attended(None, MASKED, "A prompt has a kernel on a processor with a C++ compiler alone.")
            with part("router"), torch.no_grad():
                chosen = torch.stack([self._of_prompt(call.layer, text, call.past) for text in call.of_tokens])
            rule = self._indexers[call.layer].unit, self.window, self.n_sink
            with part("set_a"):
                out = chosen_attention(*call.states, chosen, *rule, call.scaling, call.sink_logits)
            return Attended(out, PROMPT, "Each query reads the keys that its indexer chose, its window and the sinks.")
        tokens = call.of_tokens.shape[1]
        places = torch.arange(tokens, device=call.query.device)
        near = (places >= tokens - self.window) | (places < self.n_sink)
        with part("router"), torch.no_grad():
            about = places[-1:], 0, torch.ones_like(near)[None], ~near[None]
            chosen = torch.stack(
                [self._chosen(call.layer, text[-1:], text, *about)[:, 0] for text in call.of_tokens]
            )  # [B, S, Tk]
            read = chosen.repeat_interleave(call.query.shape[1] // chosen.shape[1], 1) | near
        out = gathered_attention(*call.states, read, call.scaling, call.sink_logits)
        return Attended(out, STEP, "One token gathers the keys that its indexer chose, its window and the sinks.")

    def _packed(self, layer: int, inputs: Inputs) -> Tensor:
        """Features of tokens as rows [T, F]. Made in float64: a token has the same in a prompt and alone."""
        parts = [x for x in self._indexers[layer].features(inputs) if x is not None]
        self._shapes = [x.shape[1:] for x in parts]
        return torch.cat([x.flatten(1) for x in parts], 1).float()

    def _features(self, rows: Tensor) -> Features:
        """The features in rows [T, F], in float64: equal tokens then have equal scores in calls of any shape."""
        parts = rows.double().split([shape.numel() for shape in self._shapes], 1)
        queries, *weights, keys = (x.unflatten(1, shape) for x, shape in zip(parts, self._shapes, strict=True))
        return Features(queries, weights[0] if weights else None, keys)

    def _chosen(
        self, layer: int, of_queries: Tensor, of_keys: Tensor, rows: Tensor, begins: int, visible: Tensor, free: Tensor
    ) -> Tensor:
        """Which keys queries at places `rows` [n] read beside those that all read, bool [S, n, Tk]; the first key
        is at place `begins`, `visible` [n, Tk] are those that it sees and of them `free` those that may be chosen."""
        indexer = self._indexers[layer]
        # Blocks begin at the text's first token: padding before it belongs to none, nor do keys that are gone.
        cut = max(0, -begins)
        of_keys, visible, free = of_keys[cut:], visible[:, cut:], free[:, cut:]
        ahead = (begins + cut) % indexer.unit
        of_keys = torch.cat([of_keys[:1].expand(ahead, -1), of_keys])
        visible, free = F.pad(visible, (ahead, 0)), F.pad(free, (ahead, 0))
        base, tokens = begins + cut - ahead, len(of_keys)
        inner = rows - base
        # A block whose beginning a sliding window has passed is no block any more.
        within = in_blocks(free, indexer.unit).any(-1) & visible[:, :: indexer.unit]
        features = self._features(of_queries)._replace(keys=self._features(of_keys).keys)
        best = self._best(layer, features, rows, base, within)
        # One column before the first is of those that there are too few of.
        chosen = best.new_zeros(*best.shape[:2], within.shape[1] + 1, dtype=torch.bool)
        chosen = chosen.scatter_(-1, best.long() + 1, True)[..., 1:]
        if indexer.unit > 1:
            chosen |= torch.arange(chosen.shape[-1], device=rows.device) == inner[:, None] // indexer.unit
        return F.pad(chosen.repeat_interleave(indexer.unit, -1)[..., ahead:tokens], (cut, 0))

    def _of_prompt(self, layer: int, of_tokens: Tensor, past: int) -> Tensor:
        """The units that each query after `past` tokens of a text without padding chooses, int32 [S, n, c]: as
        `_chosen`, some queries at a time and without a table of tokens."""
        indexer, unit, chosen = self._indexers[layer], self._indexers[layer].unit, []
        first, features = torch.arange(0, len(of_tokens), unit), self._features(of_tokens)  # [U]
        scored = len(first) if indexer.waits else len(of_tokens)
        for some in torch.arange(past, len(of_tokens)).split(max(64, min(ROWS, SCORES // scored))):
            stop = int(some[-1]) + 1
            units = first[: indexer.units(stop)]
            # Whether a key of the unit lies before the window and behind the sinks.
            last = (some[:, None] - self.window).minimum(units + unit - 1)
            within = units.clamp(min=self.n_sink) <= last
            chosen.append(self._best(layer, features.between(some, slice(stop)), some, 0, within))
        most = max(best.shape[-1] for best in chosen)
        return torch.cat([F.pad(best, (0, most - best.shape[-1]), value=-1) for best in chosen], 1)

    def _best(self, layer: int, features: Features, rows: Tensor, base: int, within: Tensor) -> Tensor:
        """The units that queries at places `rows` [n] choose among those `within` [n, U], int32 [S, n, c], -1 where
        there are fewer; the first key is at place `base`."""
        indexer, tokens, inner = self._indexers[layer], len(features.keys), rows - base
        tables = indexer.tables(torch.arange(base, base + tokens, device=rows.device))
        scores = indexer.scores(features, indexer.tables(rows), tables, inner).float()  # [S, n, U]
        scores = scores.masked_fill(~(within & ~indexer.unseen(inner, tokens)), -torch.inf)
        return best_units(scores, max(1, self.keys // indexer.unit))
