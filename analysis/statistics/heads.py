"""Exact statistics of every head of dense attention, streamed: entropy, rank, sink, window, distance and more."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from ..errors import BadSetting
from ..kernels.native import measured
from ..kernels.pool import accelerated, on_host
from ..kernels.rank import check_mass
from ..seam.attention import apply
from .by_torch import BINS, by_torch
from .inputs import batch, check_room, earlier
from .numerics import Numerics
from .reader import Reader

if TYPE_CHECKING:
    from ..models import Model

CORE = ("entropy", "max_prob", "top_p_rank", "first_token_mass", "window_mass", "mean_distance")
MORE = ("previous_token", "induction", "far_peaks")
ALL = (*CORE, *MORE)
# What a model itself does beside reading, of heads where it does.
OWN = ("sink_mass", "entry_mass", "gate", "selected_mass")


class HeadReading:
    """Collects statistics of all heads over texts or windows; `read` each of them, then take the tables.

    `mass` of the rank, `window` tokens of the window (the token itself included). `without_first` leaves the first
    token of each text out of every number but `first_token_mass` and renormalises: what the head does beside the sink.
    `more` collects MORE and distances too:

    - `previous_token`: mass on the token right before;
    - `induction`: mass on the tokens that follow earlier copies of the query's token;
    - `far_peaks`: far reading above chance, concentrated. Of one query: its attention to the (up to) 4 keys that it
      reads most among those `window` or more tokens back, minus what even reading of all its n visible keys gives to
      as many, min(4, far keys) / n. The first token, a sink, is no far key. 1: all attention on four far keys; 0: even
      reading; a little below 0: nothing is read far away. Mean over the queries that see a far key. A head of even,
      far attention has the largest mean distance there is and no peaks.

    Beside them stand OWN, means over all queries, where the model has a thing of this kind in a layer:

    - `sink_mass`: the share of the softmax that a head's learned sink takes;
    - `entry_mass`: the share that compressed entries take, which stand for several tokens and are none themselves
      (DeepSeek-V4; 0 where a text is too short for one);
    - `gate`: the share of a head's output that its output gate lets through, mean over its sizes. 0: what it reads is
      thrown away;
    - `selected_mass`: of dense attention of the same weights, the mass on the keys that the model's own indexer
      selected. 1: the selection costs this head nothing.

    Every number of CORE and MORE is among tokens: shares of what is read of them add up to 1, and a share p of it is
    p (1 - `sink_mass` - `entry_mass`) of all, query by query.

    `head` (layer, head) keeps its numbers for every query. `numerics` collects how exact the scores are, of texts
    without padding. `numbers`: what the layers are called in tables, 0 to L - 1 unless given.
    """

    def __init__(
        self,
        layers: int,
        heads: int,
        mass: float = 0.9,
        window: int = 128,
        without_first: bool = False,
        more: bool = True,
        head: tuple[int, int] | None = None,
        query_block: int | None = None,
        numerics: Numerics | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.numerics = numerics
        self.numbers = np.arange(layers) if numbers is None else np.asarray(numbers)
        check_mass(mass)
        for name, value in (("window", window), ("query_block", 1 if query_block is None else query_block)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise BadSetting(f"{name} is {value!r} and must be a whole number of tokens from 1 on.")
        self.layers, self.heads, self.mass, self.window = layers, heads, mass, int(window)
        self.without_first, self.more, self.head, self.query_block = without_first, more, head, query_block
        # The last head reads all visible keys alike: what chance gives.
        self.sums, self.counts = np.zeros((2, layers, heads + 1, len(ALL)))
        self.distance = np.zeros((layers, heads + 1, BINS))
        # Sums of OWN over queries, and how many they were.
        self.own, self.own_queries = np.zeros((len(OWN), layers, heads)), np.zeros((len(OWN), layers))
        self.columns: list[np.ndarray] = []
        self._on_device: dict[torch.device | str, measured.Texts[torch.Tensor]] = {}

    @torch.no_grad()
    def read(self, model: "Model", token_ids: Any, attention_mask: Any = None, reader: Reader | None = None) -> None:
        """One forward pass over tokens [T] or [B, T]; `attention_mask` [B, T] is 0 at padding, on either side.
        `reader`: one of this reading that does more on the way.

        Errors: BadText for no tokens, TooLarge for more than the model reads at once or than fits memory.
        """
        ids, real = batch(model, token_ids, attention_mask)
        check_room(model, ids, padded=not bool(real.all()))
        self.begin(ids, real)
        inputs = {"input_ids": ids}
        if not bool(real.all()):
            mask = real.long()
            inputs |= {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
        with apply(model, reader or Reader(self), kernels=True):
            model.lm.base_model(**{name: x.to(model.device) for name, x in inputs.items()}, use_cache=False)

    def begin(self, ids: torch.Tensor, real: torch.Tensor) -> None:
        """New texts, ids int64 [B, T], and which tokens are no padding: what follows is about them."""
        self._real, self._on_device = real, {}
        facts = map(np.ascontiguousarray, (real.int().argmax(1).numpy(), real.numpy(), earlier(ids, real), ids.numpy()))
        self._texts = measured.Texts(self.mass, self.window, self.without_first, self.more, *facts)
        if self.head is not None:
            self.columns.append(np.full((*ids.shape, len(ALL)), np.nan))

    def add(self, layer: int, text: int, head: int, rows: np.ndarray, start: int) -> np.ndarray:
        """Measure one head's rows of scores [n, m] float32, which become weights; returns their sums [n]."""
        numbers, totals = np.empty((len(rows), len(ALL))), np.empty(len(rows), np.float32)
        measured.measure_rows(rows, start, self._texts, text, numbers, totals, self.distance[layer, head])
        self._sum(layer, text, head, numbers, start)
        return totals

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Dense causal attention of a layer, measured on the way; for states that `measured.runs` takes."""
        every = None
        if self.head is not None and self.head[0] == layer:
            every = self.head[1], self.columns[-1]
        sums, counts, distance = (x[layer, : self.heads] for x in (self.sums, self.counts, self.distance))
        return measured.attention(query, key, value, scale, self._texts, sums, counts, distance, every)

    def add_own(self, name: str, layer: int, share: torch.Tensor, start: int) -> None:
        """One of OWN for the queries of a block, from `start` on: shares [B, H, n]."""
        real, which = self._real[:, start : start + share.shape[-1]].to(share.device), OWN.index(name)
        self.own[which, layer] += torch.where(real[:, None], share.double(), 0.0).sum((0, 2)).cpu().numpy()
        self.own_queries[which, layer] += int(real.sum())

    def measure(self, scores: torch.Tensor, even: torch.Tensor, start: int) -> None:
        """Rows [n, m] of the only head of a reading of one head, and zeros where they are visible; both are used up."""
        if accelerated(scores):
            _, *parts = by_torch(torch.stack([scores, even])[None], start, self.about(scores.device))
            self.add_many(0, start, *parts)
        else:
            for head, rows in enumerate((scores, even)):
                self.add(0, 0, head, rows.contiguous().numpy(), start)

    def add_many(self, layer: int, start: int, numbers: torch.Tensor, distance: torch.Tensor) -> None:
        """The numbers of all heads of a block as `by_torch` gives them: summed where they lie, and asked for once."""
        defined, of_distance = (~numbers.isnan()).sum((0, 2)), distance.sum(0)
        sums = on_host(torch.cat([numbers.nansum((0, 2)), defined, of_distance], -1), "sums of statistics")
        totals = self.sums, self.counts, self.distance
        for total, more in zip(totals, np.split(np.array(sums), np.cumsum([len(ALL)] * 2), 1), strict=True):
            total[layer] += more
        if self.head is not None and self.head[0] == layer:
            of_head = on_host(numbers[:, self.head[1]], "statistics of a head")
            self.columns[-1][:, start : start + numbers.shape[2]] = of_head

    def _sum(self, layer: int, text: int, head: int, numbers: np.ndarray, start: int) -> None:
        self.sums[layer, head] += np.nansum(numbers, 0)
        self.counts[layer, head] += (~np.isnan(numbers)).sum(0)
        if self.head == (layer, head):
            self.columns[-1][text, start : start + len(numbers)] = numbers

    def sums_of(self, layer: int, head: int) -> list[np.ndarray]:
        """Copies of what one head has collected."""
        return [totals[layer, head].copy() for totals in (self.sums, self.counts, self.distance)]

    def add_sums(self, layer: int, head: int, added: list[np.ndarray]) -> None:
        """Add what another head collected."""
        for totals, increment in zip((self.sums, self.counts, self.distance), added, strict=True):
            totals[layer, head] += increment

    def about(self, device: torch.device | str) -> measured.Texts[torch.Tensor]:
        """What is asked and the facts of the texts, on a device."""
        if device not in self._on_device:
            here = self._texts.first, self._texts.real, self._texts.earlier, self._texts.ids
            facts = (torch.from_numpy(fact).to(device) for fact in here)
            self._on_device[device] = measured.Texts(self.mass, self.window, self.without_first, self.more, *facts)
        return self._on_device[device]

    def means(self) -> np.ndarray:
        """[L, H + 1, 9]: exact means over the queries for which a number is defined, in the order CORE, MORE; the last
        head reads all visible keys alike (with `more`). NaN where nothing was collected."""
        with np.errstate(invalid="ignore"):
            means = self.sums / self.counts
        return means if self.more else means[..., : len(CORE)]

    def table(self) -> pd.DataFrame:
        """One row per (layer, head): `layer head`, CORE, with `more` MORE, and those of OWN that a layer has; NaN for
        the others."""
        table = self._frame(self.means()[:, : self.heads])
        with np.errstate(invalid="ignore"):
            shares = self.own / self.own_queries[..., None]
        for name, share, queries in zip(OWN, shares, self.own_queries, strict=True):
            if queries.any():
                table[name] = share.ravel()
        return table

    def chance(self) -> pd.DataFrame:
        """The same numbers for a head that reads all visible keys alike: one row per layer, without `head`."""
        return self._frame(self.means()[:, self.heads :]).drop(columns="head")

    def distances(self) -> pd.DataFrame:
        """`layer head low high mass uniform`: mass by distance in tokens (`high` exclusive), mean over queries;
        `uniform` is what reading all visible keys alike gives. Bins that no key reaches are left out."""
        queries = self.counts[:, :, ALL.index("entropy")]
        share = self.distance / np.maximum(queries, 1)[..., None]  # [L, H + 1, bins]
        used = np.flatnonzero(share[:, self.heads].any(0))
        layer, head, bin_index = np.indices((self.layers, self.heads, len(used))).reshape(3, -1)
        low = np.where(used == 0, 0, 2 ** np.maximum(used - 1, 0))
        columns = {"layer": self.numbers[layer], "head": head, "low": low[bin_index], "high": (2**used)[bin_index]}
        mass = {"mass": share[layer, head, used[bin_index]], "uniform": share[layer, self.heads, used[bin_index]]}
        return pd.DataFrame(columns | mass)

    def queries(self) -> pd.DataFrame:
        """One row per token read, for the head that was asked for: `position`, CORE and MORE; NaN where not defined."""
        rows = np.concatenate([part.reshape(-1, len(ALL)) for part in self.columns])
        return pd.DataFrame({"position": range(len(rows)), **dict(zip(ALL, rows.T, strict=True))})

    def _frame(self, means: np.ndarray) -> pd.DataFrame:
        layer, head = np.indices(means.shape[:2]).reshape(2, -1)
        values = zip(ALL, means.reshape(-1, means.shape[-1]).T, strict=False)
        return pd.DataFrame({"layer": self.numbers[layer], "head": head, **dict(values)})


def attention_statistics(
    model: "Model",
    token_ids: Any,
    mass: float = 0.9,
    window: int = 128,
    query_block: int | None = None,
    attention_mask: Any = None,
) -> pd.DataFrame:
    """What every head of a model's dense attention reads, exact, from one forward pass; no weights [T, T] are kept.

    `model` a `Model`; `token_ids` [T], or [B, T] with `attention_mask` [B, T] where texts are padded. One row per
    (layer, head): `layer head entropy max_prob top_p_rank first_token_mass window_mass mean_distance` (nats,
    probability, keys that hold `mass`, mass on the text's first token, mass less than `window` tokens back, tokens),
    means over query positions; `layer` is the model's own number, and OWN as in `HeadReading`. `query_block` queries
    are computed at once; their number changes no result.
    Errors: BadSetting, BadText, TooLarge.
    """
    about: dict[str, Any] = {"query_block": query_block, "numbers": model.layer_numbers}
    reading = HeadReading(model.num_layers, model.num_heads, mass, window, more=False, **about)
    reading.read(model, token_ids, attention_mask)
    return reading.table()
