"""KVzip+ and KVzap: keep the keys that a model needs to write its prompt once more, and a line that guesses them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadModel, BadSetting, NotFitted
from ..fitted import Fitted, check_shapes
from ..kernels.pool import on_host
from ..kernels.scoring import softmax
from ..seam.attention import apply, instead
from ..seam.calls import Prompt
from ..seam.hooks import Hooks
from ..seam.layers import shape_of
from ..seam.visible import Visible
from ..statistics.inputs import forward
from .evicting import Evicting
from .while_decoding import WhileDecoding

# First keys that are in every softmax of the repetition, and always stay.
SINKS = 4
# Queries of the repetition at once, and the fewest that are worth a pass.
ROWS, FEWEST = 256, 16
# What a module of attention calls its output projection.
PROJECTIONS = ("o_proj", "out_proj", "dense", "c_proj", "wo")


@dataclass
class KVzipPlus(Evicting):
    """The model reads its prompt and then, behind it, the same text once more; keys that this repetition looks at stay.

    A key's score is the largest weight that any token of the repetition gives it, times what its value then adds to the
    stream, by the size of what the repeating token came with. The prompt is repeated in chunks, each right behind the
    whole prompt; in a softmax stand the first four keys, the chunk and the repetition so far. What is needed to say a
    text again is needed for any question about it, so the question may be unknown. It costs a second reading, and the
    positions behind the prompt: chunks are as long as these allow. The original puts a sentence before each chunk that
    asks for the repetition; a base model would not follow it, so there is none here.
    """

    title = "KVzip+"
    paper = "Kim et al., 2025 (KVzip), arXiv 2505.23416; the norms from KVzap, arXiv 2601.07891"

    chunk: int = field(2048, "tokens of the prompt that are repeated at once", low=16, high=16384)

    def check(self, lm: Any) -> None:
        super().check(lm)
        # of every text of a prompt, layer -> the scores of its keys [G, T]
        self.found_: list[dict[int, Tensor]] = []
        self.positions_ = lm.config.get_text_config().max_position_embeddings

    @torch.no_grad()
    def before_prompt(self, lm: Any, ids: Tensor | None, mask: Tensor | None) -> None:
        """Before the model reads a prompt [B, T] with its mask [B, T], the seam calls this where a method has it: read
        every text once more behind itself, by other hooks (`instead`), and note what that needs of it."""
        if ids is None:
            raise BadSetting("KVzip+ repeats the tokens of a prompt, and this one came as embeddings: give tokens.")
        first = [0] * len(ids) if mask is None else on_host(mask.int().argmax(dim=1), "first tokens")
        texts = [text[start:] for text, start in zip(ids, first, strict=True)]
        self.found_ = [self._repeated(lm, text[: self.cut] if self.cut else text) for text in texts]

    def _repeated(self, lm: Any, prompt: Tensor) -> dict[int, Tensor]:
        """layer -> scores [G, T] of the keys of a prompt [T]. Errors: BadSetting where it cannot be repeated."""
        size = min(self.chunk, self.positions_ - len(prompt))
        if size < min(FEWEST, len(prompt)):
            raise BadSetting(
                f"KVzip+ reads a prompt a second time behind itself, and one of {len(prompt):,} tokens leaves no room "
                f"in the model's {self.positions_:,} positions: give at most {self.positions_ - FEWEST:,}."
            )
        scores: list[dict[int, Tensor]] = []
        for begin in range(0, len(prompt), size):
            chunk = prompt[begin : begin + size]
            repetition = _Repetition(self.whole_, begin, begin + len(chunk))
            with instead(lm, repetition):
                lm.base_model(torch.cat([prompt, chunk])[None], use_cache=False)
            scores.append(repetition.found)
        return {layer: torch.cat([part[layer] for part in scores], 1) for layer in scores[0]}

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> Tensor | None:
        """The scores of a prompt's keys, float32 [B, T, G], infinite of tokens behind it."""
        if not self.whole_[layer]:
            return None
        heads = len(self.found_[0][layer])
        rows = hidden.new_full((*hidden.shape[:2], heads), torch.inf, dtype=torch.float32)
        if not_padding is not None:
            places = torch.arange(hidden.shape[1], device=hidden.device)
            first = not_padding.int().argmax(dim=1)
            for text, found in enumerate(self.found_):
                scores = found[layer].T.to(rows)  # [T, G]
                inside = (places - first[text]).clamp(0, len(scores) - 1)
                within = (places >= first[text]) & (places < first[text] + len(scores))
                rows[text] = torch.where(within[:, None], scores[inside], torch.inf)
        return rows

    def key_scores(self, prompt: Prompt) -> Tensor:
        return remembered(prompt, sinks=SINKS)


def remembered(prompt: Prompt, sinks: int = 0, window: int = 0) -> Tensor:
    """What was remembered of the tokens whose keys a prompt has, as scores [1, G, L]; those of the first `sinks` and
    the last `window` tokens are infinite."""
    assert prompt.of_tokens is not None, "a score for every token is remembered"
    scores = prompt.of_tokens.transpose(1, 2).expand(-1, prompt.key.shape[1], -1)  # [1, G, T]
    length, places = scores.shape[2], prompt.key_places
    if prompt.places is not None:
        scores = scores.gather(2, places.clamp(min=0))
    return scores.masked_fill((places < sinks) | (places >= length - window), torch.inf)


class _Repetition(Hooks):
    """Reads a prompt and behind it the tokens begin..end of it once more; `found` [G, end - begin] of every layer that
    keeps the whole past."""

    dense = True

    def __init__(self, whole: list[bool], begin: int, end: int) -> None:
        self.whole, self.begin, self.end = whole, begin, end
        self.found: dict[int, Tensor] = {}

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> Tensor | None:
        """The norms of what the tokens come with, [1, T, 1]."""
        return hidden.float().norm(dim=-1, keepdim=True) if self.whole[layer] else None

    def prefill(self, prompt: Prompt) -> None:
        if self.whole[prompt.layer]:
            self.found[prompt.layer] = repeated_scores(prompt, self.begin, self.end)


def repeated_scores(prompt: Prompt, begin: int, end: int) -> Tensor:
    """KVzip+ scores of the keys begin..end of a prompt, float32 [G, end - begin], from states of the prompt and these
    tokens once more behind it, whose norms as they entered the layer are in `prompt.of_tokens`.

    The largest over the repeating queries q of all heads h of a group of p(q, i) |W_O^h v_i| / |h_q|, where p is the
    softmax over the first four keys, begin..end, and the repetition up to q.
    """
    count = end - begin
    behind = prompt.key.shape[2] - count
    assert prompt.of_tokens is not None, "the norms of the tokens are remembered"
    sinks = torch.arange(min(SINKS, begin), device=prompt.key.device)
    columns = torch.cat([sinks, torch.arange(begin, end, device=sinks.device)])
    columns = torch.cat([columns, torch.arange(behind, behind + count, device=sinks.device)])
    keys = prompt.key[:1, :, columns].float()
    added = value_norms(prompt.module, prompt.value[0, :, begin:end], prompt.query.shape[1])  # [H, n]
    entering = prompt.of_tokens[0, behind:, 0]
    visible = prompt.visible or Visible()
    highest = added.new_zeros(added.shape)
    for start in range(0, count, ROWS):
        rows = torch.arange(start, min(start + ROWS, count), device=sinks.device)
        scores = prompt.scoring.scores(prompt.query[:1, :, behind + rows].float(), keys)[0]  # [H, r, K]
        hidden = columns > behind + rows[:, None]
        if visible.bias is not None:
            scores = scores + visible.bias[0][:, behind + rows][:, :, columns]
        if visible.mask is not None:
            hidden = hidden | ~visible.mask[0][:, behind + rows][:, :, columns]
        # what the model itself may not read at all weighs nothing
        weights = softmax(scores.masked_fill(hidden, -torch.inf)[None], visible.sinks)[0].nan_to_num(0.0)
        # of a token that enters as nothing, such as padding of a vocabulary, no share is a size
        size = entering[rows, None]
        weights = (weights[..., len(sinks) : len(sinks) + count] / size).masked_fill(size == 0, 0.0)
        highest = torch.maximum(highest, weights.amax(1) * added)
    return highest.unflatten(0, (keys.shape[1], -1)).amax(1)


def value_norms(module: Any, values: Tensor, heads: int) -> Tensor:
    """|W_O^h v| of every query head h, float32 [H, n], of values [G, n, Dv]: the length of what each adds to the
    stream. Errors: BadModel for a layer whose output projection is not found."""
    projection = next((getattr(module, name) for name in PROJECTIONS if hasattr(module, name)), None)
    weight = getattr(projection, "weight", None)
    if weight is None or weight.dim() != 2:
        raise BadModel(f"{type(module).__name__} has no output projection that is known here: choose another model.")
    # GPT-2's own kind of layer keeps its matrix the other way round
    turned = type(projection).__name__ == "Conv1D"
    weight = (weight if turned else weight.T).detach().float()  # [H Dv, d]
    of_heads = weight.unflatten(0, (heads, -1))  # [H, Dv, d]
    repeated = values.float().repeat_interleave(heads // len(values), 0)  # [H, n, Dv]
    products = of_heads @ of_heads.mT  # [H, Dv, Dv]
    return ((repeated @ products) * repeated).sum(-1).clamp(min=0).sqrt()


# The penalty of the ridge, as a share of the mean variance of what enters a layer; the last tokens that always stay.
PENALTY, RECENT = 0.01, 128
# Of a score before its logarithm.
LEAST = 1e-12


@dataclass
class KVzap(WhileDecoding):
    """A line guesses the logarithm of a key's KVzip+ score from what enters its layer at that token, so nothing is read
    twice and no query is looked at.

    The line is fitted once for a model on calibration texts, with an intercept, in closed form. The last `window`
    tokens always stay. The original drops what lies below a threshold, so that a text decides how much is kept; here
    the share is given, as for all methods of this kind.
    """

    title = "KVzap"
    paper = "Jegou and Jeblick, 2026 (KVzap), arXiv 2601.07891"
    needs = "calibration"

    window: int = field(RECENT, "last tokens of the prompt that always stay", low=0, high=4096)
    fitted: Fitted | None = None

    def fit(self, model: Any, windows: Tensor) -> "KVzap":
        """The lines of every layer, `weight` [L, G, d] and `bias` [L, G], from moments that are streamed."""
        if 2 * windows.shape[1] > model.max_positions:
            # the model has room for a prompt and its repetition
            half = windows.shape[1] // 2
            windows = torch.cat([windows[:, :half], windows[:, -half:]])
        method = _Moments()
        for ids in windows:
            with apply(model, method):
                forward(model, ids)
        # a layer with a sliding window keeps what it has
        empty = torch.zeros(model.num_kv_heads, model.width), torch.zeros(model.num_kv_heads)
        lines = [ridge(*method.sums_[at]) if at in method.sums_ else empty for at in range(model.num_layers)]
        weight, bias = (torch.stack([part.float().cpu() for part in parts]) for parts in zip(*lines, strict=True))
        self.fitted = Fitted("kvzap", {"weight": weight, "bias": bias})
        return self

    def check(self, lm: Any) -> None:
        super().check(lm)
        if self.fitted is None:
            raise NotFitted("KVzap has no lines yet: calibrate it with `fit-method kvzap`.")
        layers, _, kv_heads, _ = shape_of(lm)
        kv_heads = 1 if self.fitted["bias"].shape[1:] == (1,) else kv_heads  # one line for all heads
        check_shapes(self.fitted, {"weight": (layers, kv_heads, None), "bias": (layers, kv_heads)})
        self.fitted.to(lm.device)

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> Tensor | None:
        """The guess for every token, float32 [B, T, G]."""
        assert self.fitted is not None, "check refuses a method without lines"
        weight, bias = (self.fitted[name][layer].to(hidden.device) for name in ("weight", "bias"))
        return hidden.detach().float() @ weight.T + bias if self.whole_[layer] else None

    def key_scores(self, prompt: Prompt) -> Tensor:
        return remembered(prompt, window=self.window)

    @property
    def scoring_queries(self) -> int:
        """None: the scores of all tokens are remembered."""
        return 0


class _Moments(KVzipPlus):
    """KVzip+ that drops nothing and adds up what entered a layer, with the logarithm of the scores of its keys."""

    dense = True

    def __post_init__(self) -> None:
        super().__post_init__()
        # layer -> count, sums of x, y, x x', x y'
        self.sums_: dict[int, list[Tensor]] = {}

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> None:
        rows = super().token_features(layer, hidden, not_padding)
        if rows is not None:
            x, y = hidden[0].detach().double(), rows[0].double().clamp(min=LEAST).log()
            parts = [x.new_tensor(len(x)), x.sum(0), y.sum(0), x.T @ x, x.T @ y]
            before = self.sums_.get(layer)
            self.sums_[layer] = parts if before is None else [a + b for a, b in zip(before, parts, strict=True)]

    def prefill(self, prompt: Prompt) -> None:
        """Drop nothing."""


def ridge(count: Tensor, x: Tensor, y: Tensor, xx: Tensor, xy: Tensor) -> tuple[Tensor, Tensor]:
    """(weight [G, d], bias [G]) of the line y = W x + b with the least squared error and a penalty on W alone, of sums
    over `count` pairs: x [d], y [G], x x' [d, d] and x y' [d, G]. The penalty is PENALTY of the mean variance."""
    mean, level = x / count, y / count
    spread = xx / count - mean[:, None] * mean
    penalty = PENALTY * spread.diagonal().mean() * torch.eye(len(mean), dtype=spread.dtype, device=spread.device)
    weight = torch.linalg.solve(spread + penalty, xy / count - mean[:, None] * level).T
    return weight, level - weight @ mean
