"""What each new token read, and what it would have read had it been there: the answer is read again, watched. What left
its KV cache at which step, and which later step of dense attention wanted it."""

from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor

from ...answer import doc, record
from ...methods.base import Dense, Method
from ...models import Model
from ...seam.attention import Block, apply

# Keys that are kept of a token and head.
MOST = 8
# Of all that is kept of an answer.
BYTES = 16 << 20
# Bytes of a key that was read and one that was not: places in 4, weights in 2.
OF_KEY = 12
# Tokens that a draft writes before they are checked.
AHEAD = 4
# A key that no step misses, and keys that are listed of an answer.
HELD, LISTED = np.iinfo(np.int16).max, 20


class Readings:
    """Watches the queries that made the new tokens, the first of them at place `first`; `new` tokens in all.

    Rows of a token: 0 the mean over all heads, 1 to L the mean over a layer, then every head, layer by layer. Of each
    row the `most` keys that were read most, and the most that dense attention over the same states would have read and
    the method did not let it.
    """

    def __init__(self, model: Model, first: int, new: int) -> None:
        self.layers, self.heads, self.first, self.new = model.num_layers, model.num_heads, first, new
        rows = 1 + self.layers * (1 + self.heads)
        self.most = max(1, min(MOST, BYTES // (new * rows * OF_KEY)))
        self.keys = {kind: np.full((new, rows, self.most), -1, np.int32) for kind in ("read", "gone")}
        self.weights = {kind: np.zeros((new, rows, self.most), np.float16) for kind in ("read", "gone")}
        self.lost = np.zeros((new, rows), np.float16)
        self._sums = {kind: torch.zeros(new, first + new) for kind in ("read", "gone")}

    def __call__(self, block: Block, probabilities: Tensor) -> None:
        """A block of queries of one layer; probabilities [1, H, n, Tk]."""
        watched = block.rows >= self.first
        if not watched.any():
            return
        steps = (block.rows[watched] - self.first).cpu()
        read = probabilities[0][:, watched].float().cpu()  # [H, n, Tk]
        assert block.read is not None, "what is watched has been through the softmax"
        # bool [H, n, Tk]
        visible, readable = (
            mask.expand(block.scores.shape)[0][:, watched].cpu() for mask in (block.visible, block.read)
        )
        gone = torch.zeros_like(read)
        if (visible & ~readable).any():
            scores = block.scores[0][:, watched].float().cpu().masked_fill(~visible, -torch.inf)
            gone = torch.softmax(scores, -1).masked_fill(readable, 0.0)
        of_heads = 1 + self.layers + block.layer * self.heads
        for kind, probabilities_of_kind in (("read", read), ("gone", gone)):
            self._put(kind, steps, of_heads, probabilities_of_kind)
            mean = probabilities_of_kind.mean(0, keepdim=True)
            self._put(kind, steps, 1 + block.layer, mean)
            self._sums[kind][steps, : mean.shape[2]] += mean[0]

    def arrays(self) -> dict[str, np.ndarray]:
        """`read` and `gone` int32 [new, rows, most], places of the keys, -1 where there are fewer; `read_weight` and
        `gone_weight` float16, what each was given, or would have been; `lost` float16 [new, rows], all that would have
        gone to what was not read."""
        for kind, total in self._sums.items():
            self._put(kind, torch.arange(self.new), 0, total[None] / self.layers)
        weights = {f"{kind}_weight": values for kind, values in self.weights.items()}
        return {**self.keys, **weights, "lost": self.lost}

    def _put(self, kind: str, steps: Tensor, row: int, probabilities: Tensor) -> None:
        """The strongest keys of `found` [rows, n, Tk], for rows from `row` on."""
        weights, keys = probabilities.topk(min(self.most, probabilities.shape[2]), -1)  # [rows, n, most]
        keys = keys.masked_fill(weights <= 0, -1)
        rows, count = slice(row, row + len(probabilities)), weights.shape[2]
        self.keys[kind][steps.numpy(), rows, :count] = keys.transpose(0, 1).numpy()
        self.weights[kind][steps.numpy(), rows, :count] = weights.transpose(0, 1).numpy()
        if kind == "gone":
            self.lost[steps.numpy(), rows] = probabilities.sum(-1).T.numpy()


@torch.no_grad()
def readings(lm: Model, method: Method, ids: np.ndarray, cut: int, new: list[int]) -> dict[str, np.ndarray]:
    """`Readings.arrays` of the answer `new` to the prompt `ids`, over whose first `cut` tokens the method decides."""
    watch = Readings(lm, len(ids) - 1, len(new))
    with apply(lm, _deciding(method, cut), watch):
        lm.lm.base_model(input_ids=_sequence(lm, ids, new), use_cache=False)
    return watch.arrays()


@torch.no_grad()
def agreed(lm: Model, method: Method, ids: np.ndarray, cut: int, answer: list[int]) -> np.ndarray:
    """bool [n]: whether a method too writes each token of an `answer` to the prompt `ids`, after the same text."""
    with apply(lm, _deciding(method, cut)):
        output = lm.lm(input_ids=_sequence(lm, ids, answer), use_cache=False, logits_to_keep=len(answer))
    return output.logits[0].argmax(-1).cpu().numpy() == np.asarray(answer)


def checks(agrees: np.ndarray, ahead: int = AHEAD) -> int:
    """How many passes of dense attention write an answer whose tokens a draft gets right where it `agrees` bool [n]:
    each checks `ahead` drafted tokens at once, keeps those before the first wrong one, and adds one of its own
    (speculative decoding, greedy). Exact: a drafted token counts only after right ones, so after the answer itself."""
    place = count = 0
    while place < len(agrees):
        drafted = agrees[place : place + ahead]
        place += (len(drafted) if drafted.all() else int(drafted.argmin())) + 1
        count += 1
    return count


def _deciding(method: Method, cut: int) -> Method:
    """The method, which decides over the first `cut` tokens where it decides once."""
    return replace(method, **{"cut": cut}) if any(item.name == "cut" for item in fields(method)) else method


def _sequence(lm: Model, ids: np.ndarray, new: list[int]) -> Tensor:
    return torch.as_tensor([*ids.tolist(), *new[:-1]]).to(lm.device)[None]


@record
class Missed:
    """A key that had left, and what dense attention over the same text gives it from then on."""

    side: int = doc("the row of the answer")
    layer: int = doc("the model's own number of the layer")
    head: int = doc("key-value head")
    position: int = doc("place in the prompt and the answer")
    left: int = doc("the first step, counted from 0, that does not find it")
    attention: float = doc(
        "of later steps up to the first token unlike dense attention's, summed over them and over the query heads that "
        "share the key"
    )
    step: int = doc("the one of them that gives it most")


class _Later:
    """Watches dense attention: what it gives to keys from the step on that does not find them, `left` [L, G, T]."""

    def __init__(self, left: np.ndarray, first: int) -> None:
        self.left, self.first = torch.from_numpy(left), first
        self.sums, self.most = torch.zeros(left.shape), torch.zeros(left.shape)
        self.steps = torch.zeros(left.shape, dtype=torch.long)

    def __call__(self, block: Block, probabilities: Tensor) -> None:
        rows = block.rows >= self.first
        if not rows.any():
            return
        layer, size = block.layer, probabilities.shape[-1]
        steps = (block.rows[rows] - self.first).cpu()
        weights = probabilities[0][:, rows].float().cpu().unflatten(0, (self.left.shape[1], -1)).sum(1)  # [G, n, Tk]
        missed = weights * (self.left[layer][:, None, :size] <= steps[:, None])
        self.sums[layer][:, :size] += missed.sum(1)
        most, which = missed.max(1)
        more = most > self.most[layer][:, :size]
        self.steps[layer][:, :size][more] = steps[which][more]
        self.most[layer][:, :size][more] = most[more]


@torch.no_grad()
def missed(lm: Model, side: int, ids: np.ndarray, new: list[int], left: np.ndarray) -> list[Missed]:
    """The keys that dense attention would have read most after they had left the KV cache of an answer to the prompt
    `ids`, whose first tokens are `new`; `left` as of `Written`."""
    watch = _Later(left, len(ids) - 1)
    sequence = torch.as_tensor([*ids.tolist(), *new[:-1]]).to(lm.device)[None]
    with apply(lm, Dense(), watch):
        lm.lm.base_model(input_ids=sequence, use_cache=False)
    size, kv_heads = left.shape[2], left.shape[1]
    values, places = watch.sums.flatten().topk(min(LISTED, watch.sums.numel()))
    rows = []
    for value, place in zip(values.tolist(), places.tolist(), strict=True):
        layer, head, position = place // size // kv_heads, place // size % kv_heads, place % size
        if value > 0:
            about = side, lm.layer_numbers[layer], head, position, int(left[layer, head, position])
            rows.append(Missed(*about, value, int(watch.steps[layer, head, position])))
    return rows
