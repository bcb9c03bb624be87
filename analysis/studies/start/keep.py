"""One text read with ever fewer keys, every head keeping its best: what that costs, and what is no longer read."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from ...answer import Answer, doc, record
from ...commands.text import Keep
from ...errors import BadSetting
from ...methods import METHODS
from ...methods.base import Method
from ...methods.csa import CSA
from ...metrics.budgets import budget_for_reads
from ...metrics.paired import perplexity_change
from ...models import Model
from ...seam.attention import Block, apply
from ...statistics import forward
from ..context import Context, Reading, protocol, read
from ..text.kept import Readings, Tensors
from ..text.scoring import Progress, window_losses
from .start import far_from

# Of the reads; in the middle, where the slider begins, first.
SHARES = (1.0, 0.2, 0.1, 0.05, 0.5, 0.02, 0.75, 0.35, 0.15, 0.03)
MOST = 32
# Queries that are looked at for what is kept: a look at all of them takes longer than all passes together.
EVERY = 4
# Of the progress, for what is kept.
LOOKING = 0.3


@record
class KeptRow:
    """The text read with a share of the reads of dense attention."""

    share: float = doc("of the reads of dense attention")
    keys: int = doc("that every query of every head keeps, its best")
    loss: float = doc("nats per token")
    change: float = doc("of the perplexity, as a share")
    low: float | None = doc("95% interval of the change")
    high: float | None


@record
class KeptBest(Answer):
    """A text read with ever fewer keys, each head keeping its best."""

    rows: list[KeptRow] = doc("one per share, the largest first")
    min_distance: int = doc("tokens back from which on a token is far")
    notes: list[str] = doc("what to bear in mind")
    kept: np.ndarray = doc("float32 [shares, T]: share of a token's far attention still read; NaN: none")


def keep(request: Keep, *, context: Context) -> KeptBest:
    """Read a text once for each share of the reads, every query of every head keeping its keys of largest score.

    All heads keep equally many. Nothing chooses better by the scores, and all keys are scored to choose: a ceiling of
    methods that do without. `kept` is of dense attention: of what later tokens give a token from afar, how much lies
    among the keys that they keep, by every fourth of them. Errors: BadSetting.
    """
    shares = list(SHARES if request.shares is None else request.shares)
    if not 1 <= len(shares) <= MOST or not all(0 < share <= 1 for share in shares):
        raise BadSetting(f"The shares are {str(shares)[:40]} and must be 1 to {MOST} numbers above 0 up to 1.")
    shares = list(dict.fromkeys([1.0, *(float(share) for share in shares)]))
    lm = context.model(request.model)
    reading = read(context, lm, request.text, request.long_text)
    min_distance = far_from(reading, request.min_distance)
    longest = max(len(ids) for ids in reading.windows)
    keys = {share: budget_for_reads(np.ones((1, 1)), share, longest) for share in shares if share < 1}
    kept = _kept(context.within(0.0, LOOKING), lm, reading, list(keys.values()), min_distance)
    progress = Progress(context.within(LOOKING, 1 - LOOKING), len(shares) * len(reading.windows))
    shape = (lm.num_layers, lm.num_heads)
    dense = _losses(context, lm, reading, METHODS["dense"](), "dense", progress)
    rows = [KeptRow(1.0, longest, float(dense.mean()), 0.0, None, None)]
    for share in keys:
        method = CSA(budgets=(keys[share],) * (shape[0] * shape[1]), shape=shape)
        losses = _losses(context, lm, reading, method, f"keeping {share:.0%}", progress)
        # One row: the last window of a text may be a shorter one.
        change = perplexity_change(losses[None], dense[None])
        rows.append(KeptRow(share, keys[share], float(losses.mean()), change.change, change.low, change.high))
    order = np.argsort([-row.share for row in rows], kind="stable")
    return KeptBest(
        rows=[rows[place] for place in order],
        min_distance=min_distance,
        notes=reading.notes,
        kept=kept[order],
        protocol=protocol("keep", lm, request.text, len(reading.tokens), min_distance=min_distance, shares=shares),
    )


def _losses(
    context: Context, lm: Model, reading: Reading, method: Method, name: str, progress: Callable[[str], None]
) -> np.ndarray:
    """Nats of each predicted token, [n]; found where an interrupted reading has left them."""

    def make() -> Tensors:
        rows = [window_losses(lm, ids[None], method, progress, name)[0] for ids in reading.windows if len(ids) > 1]
        return {"losses": torch.from_numpy(np.concatenate(rows))}

    decides = [getattr(method, "budgets", None)]
    return Readings(context, lm, reading.windows).made(f"losses, {name}", decides, make)["losses"].numpy()


def _kept(context: Context, lm: Model, reading: Reading, keys: list[int], min_distance: int) -> np.ndarray:
    """`KeptFar.shares` of a text, all reads in front, [1 + keys, T]."""

    def make() -> Tensors:
        kept, start = KeptFar(len(reading.tokens), keys, min_distance), 0
        for index, ids in enumerate(reading.windows):
            stage, done = f"window {index + 1} of {len(reading.windows)}", index / len(reading.windows)
            context.progress(done, stage)
            by_layer = context.by_layer(lm, done, 1 / len(reading.windows), stage)
            with torch.no_grad(), by_layer, apply(lm, METHODS["dense"](), watch=kept.window(start)):
                forward(lm, ids)
            start += len(ids)
        return {"kept": torch.from_numpy(kept.shares())}

    return Readings(context, lm, reading.windows).made("kept from afar", [keys, min_distance], make)["kept"].numpy()


class KeptFar:
    """Collects, over heads, layers and windows, how much of the far attention that a token gets lies among the keys
    that its readers keep: of every EVERY-th query the `keys` most probable, ties kept; all of them in front."""

    def __init__(self, tokens: int, keys: Sequence[int], min_distance: int) -> None:
        self.keys, self.min_distance = keys, min_distance
        self.mass = np.zeros((1 + len(keys), tokens))

    def window(self, start: int) -> Callable[[Block, torch.Tensor], None]:
        """A watch for the window whose first token is token `start` of the text (batch of one)."""

        def watch(block: Block, probabilities: torch.Tensor) -> None:
            given, rows = probabilities[0, :, ::EVERY].float(), block.rows[::EVERY]
            reach = int((block.columns <= rows.max() - self.min_distance).sum())
            if reach < 2:
                return
            distances = rows[:, None] - block.columns[:reach]
            visible = block.visible[0, 0].expand(len(block.rows), -1)[::EVERY, :reach]
            far = visible & (block.columns[:reach] > 0) & (distances >= self.min_distance)
            ranked = given.topk(min(max(self.keys), given.shape[-1]), -1).values
            from_afar = given[..., :reach] * far
            span = slice(start, start + reach)
            self.mass[0, span] += from_afar.sum((0, 1)).cpu().numpy()
            for place, count in enumerate(self.keys, 1):
                least = ranked[..., min(count, ranked.shape[-1]) - 1, None]
                self.mass[place, span] += (from_afar * (from_afar >= least)).sum((0, 1)).cpu().numpy()

        return watch

    def shares(self) -> np.ndarray:
        """float32 [1 + keys, T]; NaN where a token gets no far attention at all."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.mass[0] > 0, self.mass / self.mass[0], np.nan).astype(np.float32)
