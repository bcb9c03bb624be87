"""TriAttention: keep the keys that a head's mean query, turned to later positions, is expected to read."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadModel, BadSetting, NotFitted
from ..fitted import Fitted, check_shapes
from ..routers.preferences import expected_logits, query_statistics
from ..seam.cache import CompactLayer
from ..seam.calls import Attended, Block, Call, Prompt, part_of
from ..seam.layers import has_rotary, shape_of
from .base import read_all
from .evicting import PROMPT, prompt_bounds
from .while_decoding import WhileDecoding

ALONE = "per_layer_perhead"
SHARES = (ALONE, "per_head", "union")


@dataclass
class TriAttention(WhileDecoding):
    """Keeps the keys that a head's *mean* query will read from later positions, whatever the text says.

    Before their rotation the queries of many heads point nearly one way. A calibration notes that way, frequency by
    frequency, and how far queries stray from it. Turned 1, 2, 4 ... 65,536 tokens ahead of the next one, the mean query
    gives each key a score, and a key that is long in frequencies where queries vary counts too. No query of the prompt
    is looked at. Scores are set to mean 0 and deviation 1 per query head, and those of the heads that share a key-value
    head become one by their maximum or mean. Each key-value head of a layer keeps its own keys; with *per_head* the
    scores are averaged over the layers, so that head g keeps the same tokens in all of them; with *union* the whole
    model keeps one set, by the largest score of any head, which is what TensorRT-LLM does unless told otherwise. The
    original drops keys while it writes, every 128 tokens: here so with a budget, where each head keeps its own.
    """

    title = "TriAttention"
    paper = "Mao et al., 2026 (TriAttention), arXiv 2604.04921"
    needs = "calibration"

    share: str = field(ALONE, "what keeps one set of keys: a head, a head in all layers, the model", options=SHARES)
    group: str = field("max", "how query heads that share keys become one score", options=("max", "mean"))
    fitted: Fitted | None = None

    def fit(self, model: Any, windows: Tensor) -> "TriAttention":
        """E[q_f] and E|q_f| of every head with what its layer pairs and how fast it turns, [L, H, D/2] and [L, D/2]."""
        statistics = query_statistics(model, list(windows.cpu().numpy()))
        if len({mean.shape for mean in statistics.mean}) > 1:
            raise BadModel("The layers of this model differ in the size of their heads: choose another method.")
        mean, turns = torch.stack(statistics.mean), statistics.frequencies
        tensors = {"mean_real": mean.real, "mean_imaginary": mean.imag, "size": torch.stack(statistics.size)}
        tensors |= {
            part: torch.stack([getattr(turn, part) for turn in turns]) for part in ("real", "imaginary", "rates")
        }
        tensors["factor"] = torch.tensor([turn.factor for turn in turns])
        self.fitted = Fitted("triattention", {name: tensor.float() for name, tensor in tensors.items()})
        return self

    def check(self, lm: Any) -> None:
        super().check(lm)
        if not has_rotary(lm):
            raise BadModel("TriAttention turns queries to later positions, and this model has no rotary positions.")
        if self.fitted is None:
            raise NotFitted("TriAttention has no mean queries yet: calibrate it with `fit-method triattention`.")
        if self.budget and self.share != ALONE:
            raise BadSetting(
                f"With share {self.share} all layers decide together, and each layer is cut to a budget alone: leave "
                "the budget at 0, or let each head keep its own."
            )
        layers, heads, _, size = shape_of(lm)
        of_heads, of_layers = (layers, heads, size // 2), (layers, size // 2)
        check_shapes(self.fitted, dict.fromkeys(("mean_real", "mean_imaginary", "size"), of_heads))
        check_shapes(self.fitted, dict.fromkeys(("real", "imaginary", "rates"), of_layers))
        self.fitted.to(lm.device)
        # Where scores are shared over layers: by layer, those of each text and the part of the cache, until the last
        # layer has scored its keys.
        self.waiting_: dict[int, list[Tensor]] = {}
        self.stored_: dict[int, CompactLayer] = {}

    def key_scores(self, prompt: Prompt) -> Tensor:
        """What later queries are expected to give each key, [1, G, L]; keys are where their rotation puts them."""
        assert self.fitted is not None, "check refuses a method without mean queries"
        of_layer = {name: x[prompt.layer].to(prompt.key.device) for name, x in self.fitted.tensors.items()}
        key = prompt.key[0].double()
        # the factor of the tables multiplies every score alike, and what follows sets deviations to 1
        turned = torch.complex(key[..., of_layer["real"].long()], key[..., of_layer["imaginary"].long()])
        mean = torch.complex(of_layer["mean_real"], of_layer["mean_imaginary"])
        now = prompt.now or prompt.key.shape[2]
        scores = expected_logits(mean, of_layer["size"], turned, now, of_layer["rates"].double())
        there = (prompt.key_places[0] >= 0).repeat_interleave(len(scores) // len(key), 0)  # [H, L]
        count = there.sum(-1, keepdim=True)
        scores = (scores - (scores * there).sum(-1, keepdim=True) / count) * there
        scores = scores / (scores.square().sum(-1, keepdim=True) / count).sqrt().clamp(min=1e-6)
        of_group = scores.unflatten(0, (len(key), -1))  # [G, H / G, L]
        return (of_group.amax(1) if self.group == "max" else of_group.mean(1)).float()[None]

    @property
    def scoring_queries(self) -> int:
        """None: their mean is known."""
        return 0

    def prefill(self, prompt: Prompt) -> None:
        """As of any method that evicts, but for scores that are shared over layers: the last layer decides for all."""
        if self.share == ALONE or not self.whole_[prompt.layer]:
            return super().prefill(prompt)
        if self.cut:
            raise BadSetting(
                f"With share {self.share} it is known what stays when the last layer has read the prompt: give the "
                "prompt as a call of its own."
            )
        self.bounds_, self.first_ = prompt_bounds(prompt, 0), prompt.first
        self.ends_ = torch.full_like(prompt.first, prompt.query.shape[2])
        if prompt.layer == self.whole_.index(True):
            self.waiting_, self.kept_, self.stored_ = {}, {}, {}
        with torch.no_grad():
            parts = [part_of(prompt, text, *bounds) for text, bounds in enumerate(self.bounds_)]
            self.waiting_[prompt.layer] = [self.key_scores(part) for part in parts]
        if prompt.layer != self.last_:
            return None
        stays = torch.ones_like(prompt.key[..., 0], dtype=torch.bool)  # [B, G, T]
        for text, (first, end) in enumerate(self.bounds_):
            scores = torch.stack([of_texts[text].to(stays.device) for of_texts in self.waiting_.values()])
            largest = scores.amax((0, 2), keepdim=True)[0].expand_as(scores[0])
            shared = scores.mean(0) if self.share == "per_head" else largest  # [1, G, L]
            stays[text, :, first:end] = self.kept_keys(prompt.layer, shared)
        self.kept_ = {layer: stays.to(scores[0].device) for layer, scores in self.waiting_.items()}
        return None

    @property
    def last_(self) -> int:
        """The last layer that keeps the whole past."""
        return max(layer for layer, whole in enumerate(self.whole_) if whole)

    def mask(self, block: Block) -> Tensor | None:
        # with shared scores the prompt is read, densely, before it is known what stays
        undecided = self.whole_[block.layer] and block.layer not in self.kept_
        return None if undecided else super().mask(block)

    def attend(self, call: Call) -> Attended:
        """As of any method that evicts; where the last layer decides, all are compacted then."""
        if self.share == ALONE or call.past or not self.whole_[call.layer]:
            return super().attend(call)
        if call.layer != self.last_:
            if isinstance(call.stored, CompactLayer):
                self.stored_[call.layer] = call.stored
            dense = read_all(call)
            return dense if dense.out is None else Attended(dense.out, PROMPT, "The last layer decides what stays.")
        done = super().attend(call)
        while done.kernel == PROMPT and self.stored_:
            layer, stored = self.stored_.popitem()
            stored.compact(self.kept_[layer], self.stored_as(layer))
        return done
