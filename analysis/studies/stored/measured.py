"""One arm of a study: what it reads, and its losses, pairs and group sizes on every window, stored when it is done."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from ...corpus import text_hash
from ...files import write_whole
from ...groups.controls import random_tokens, shuffled
from ...groups.router import FocusRouter
from ...kernels.members import texts_of
from ...methods import METHODS
from ...methods.base import read_all
from ...methods.focus import Focus
from ...metrics.quality import token_losses
from ...models import Model
from ...seam.attention import apply
from ...seam.calls import Attended, Call
from ..context import Context
from ..text.held_out import ids_hash

KERNELS = "exact kernels of each method"
READINGS: dict[str, dict] = {  # of the trained router: how its groups are balanced, and whether far pairs are gated
    "trained": {},
    "trained, literal": {"membership": "literal"},
    "trained, soft": {"reading": "soft"},
    "trained, soft literal": {"membership": "literal", "reading": "soft"},
}
DRAWS = 3  # of random tokens
BLOCK = 1024  # queries whose pairs are counted at once


@dataclass(frozen=True)
class Arm:
    """What is read: everything (no `settings`), or as Focus with these settings by the groups of `router`, by groups
    `drawn` (groups, memberships, seed) for each window, layer and token, or with neither by the window alone. `chance`
    deals the router's groups to the tokens anew: groups of the same sizes. `layer`: Focus reads so in one layer alone,
    the others are dense."""

    name: str
    settings: dict | None = None
    router: FocusRouter | None = None
    drawn: tuple[int, int, int] | None = None
    chance: int | None = None
    layer: int | None = None

    def memberships(self, index: int, length: int, layers: int) -> list[torch.Tensor] | None:
        """Memberships of window `index` that no router decides, bool [length, K] of each layer."""
        if self.drawn is None:
            return None if self.router else [torch.zeros(length, 1, dtype=torch.bool)] * layers
        groups, top, seed = self.drawn
        return [random_tokens(length, groups, top, one) for one in layer_seeds(seed, index, layers)]


DENSE = Arm("dense")


def window_arm(window: int) -> Arm:
    """The last `window` tokens and the sinks alone."""
    return Arm(f"window {window}", {"window": window})


def trained_arm(name: str, router: FocusRouter, window: int) -> Arm:
    """One of `READINGS` of the trained router."""
    return Arm(name, {"window": window, **READINGS[name]}, router)


def drawn_arms(router: FocusRouter, window: int, seed: int, top: int | None = None) -> list[Arm]:
    """Random tokens, drawn `DRAWS` times: as many groups and memberships (or `top` of them) as `router` has."""
    arms, suffix = [], "" if top is None else f", top {top}"
    for draw in range(seed, seed + DRAWS):
        drawn = router.K, top or router.top, draw
        arms.append(Arm(f"random tokens {draw}{suffix}", {"window": window}, drawn=drawn))
    return arms


@dataclass(frozen=True)
class Measured:
    """An arm on n windows of T tokens: `losses` [n, T - 1] nats; `pairs` [n, L] query-key pairs read, exactly;
    `counts` [n, L, K] tokens whose best group this is (random tokens: memberships); `seeds` mean loss of each seed."""

    losses: np.ndarray
    pairs: np.ndarray
    counts: np.ndarray
    seeds: tuple[float, ...] = ()

    @classmethod
    def pool(cls, several: list[Self]) -> Self:
        """Arms that differ in their seed alone as one: the mean over seeds, token by token."""
        if len(several) == 1:
            return several[0]
        losses, pairs = (np.mean([getattr(m, name) for m in several], axis=0) for name in ("losses", "pairs"))
        seeds = tuple(float(m.means.mean()) for m in several)
        return cls(losses, pairs, np.sum([m.counts for m in several], axis=0), seeds)

    @property
    def means(self) -> np.ndarray:
        """Mean loss of each window, float64 [n]."""
        return self.losses.astype(np.float64).mean(1)

    @property
    def mean_pairs(self) -> float:
        """Pairs read, per window and layer."""
        return float(self.pairs.mean())

    @property
    def shares(self) -> list[float]:
        """The largest group's share in each layer, all windows pooled [L]; 0 where no token is in a group."""
        total = self.counts.sum(0)  # [L, K]
        return (total.max(1) / np.maximum(total.sum(1), 1)).tolist()

    @property
    def level(self) -> dict[str, float]:
        """`loss` and `perplexity`."""
        loss = float(self.means.mean())
        return {"loss": loss, "perplexity": float(np.exp(loss))}

    def row(self, name: str) -> dict[str, Any]:
        """The arm as a row of a table; `pairs_share` is of all causal pairs, `largest_share` the largest per layer."""
        pairs = causal_pairs(self.losses.shape[1] + 1)
        reads = {"pairs": self.mean_pairs, "pairs_share": self.mean_pairs / pairs}
        shares = self.shares if self.counts.any() else None
        return {"arm": name} | self.level | reads | {"largest_share": shares, "seed_losses": list(self.seeds) or None}


@dataclass
class Noted(Focus):
    """Focus that notes what it reads in one unpadded window; `assigned` [L][T, K] takes the router's place. `dealt`: a
    seed per layer with which its groups are dealt to the tokens anew. `only`: the one layer that it reads so (None:
    all)."""

    assigned: list[torch.Tensor] | None = None
    dealt: list[int] | None = None
    only: int | None = None
    pairs: list[int] = field(default_factory=list)
    counts: list[np.ndarray] = field(default_factory=list)

    def token_features(self, layer: int, hidden: torch.Tensor, not_padding: torch.Tensor | None) -> torch.Tensor:
        length, router = hidden.shape[1], self.router
        assert router is not None
        if self.only not in (None, layer) or not self.groups_in(layer):
            self.pairs.append(causal_pairs(length))
            self.counts.append(np.zeros(router.K if self.assigned is None else self.assigned[layer].shape[1], int))
            return torch.ones(1, length, 1, dtype=torch.bool, device=hidden.device)
        if self.assigned is None:
            groups = super().token_features(layer, hidden, not_padding)  # [1, T, K]
            assert groups is not None, "the layer has groups"
            soft = router.soft(layer, hidden, not_padding, self.membership)
            sizes = F.one_hot(soft[0].argmax(-1), router.K).sum(0)  # [K], or of each head [heads, K]
            sizes = sizes if sizes.dim() == 1 else sizes[sizes.amax(-1).argmax()]
        else:
            groups = self.assigned[layer][None].to(hidden.device)
            sizes = groups[0].sum(0)
        if self.dealt is not None:
            groups = shuffled(groups[0], self.dealt[layer])[None]
        hard = self.reading == "hard"
        # Heads with groups of their own count as their mean.
        read = [read_pairs(of_head, self.window, self.n_sink) for of_head in texts_of(groups)] if hard else []
        self.pairs.append(round(np.mean(read)) if hard else causal_pairs(length))
        self.counts.append(sizes.cpu().numpy())
        return groups

    def attend(self, call: Call) -> Attended:
        # One group of all tokens reads the same pairs, but a layer that is left alone shall be dense to the bit.
        return super().attend(call) if self.only in (None, call.layer) else read_all(call)


def layer_seeds(seed: int, index: int, layers: int) -> list[int]:
    """One seed for every layer of window `index`."""
    return np.random.SeedSequence([seed, index]).generate_state(layers).tolist()


def causal_pairs(length: int) -> int:
    """Query-key pairs of dense attention over `length` tokens."""
    return length * (length + 1) // 2


def read_pairs(members: torch.Tensor, window: int, n_sink: int = 0) -> int:
    """Query-key pairs that memberships bool [T, K] let read: j <= i, and in one group, i - j < window or j < n_sink."""
    at, groups, read = torch.arange(len(members), device=members.device), members.float(), 0
    for rows in at.split(BLOCK):
        queries, keys = rows[:, None], at[: rows[-1] + 1]
        shared = groups[rows] @ groups[keys].T > 0.5  # [n, keys]
        near = (queries - keys < window) | (keys < n_sink)
        read += int(((shared | near) & (keys <= queries)).sum())
    return read


@dataclass
class Bench:
    """Where the arms of a study are measured: the same windows `ids` [n, T] of token ids, the same sinks for all.

    `work` holds one safetensors file per arm, named by all that decides its numbers, so a stopped study continues with
    the next arm and studies of other routers share what they have in common; None stores nothing. `expected` arms make
    the whole.
    """

    model: Model
    # Of an arm without a router; dense attention needs none.
    stand_in: FocusRouter | None
    ids: np.ndarray
    n_sink: int
    work: Path | None
    context: Context
    expected: int = 19
    done: int = 0

    def measure(self, arm: Arm) -> Measured:
        """The arm on every window, one window at a time; progress is told while no method is applied."""
        place = self._place(arm)
        arrays: dict[str, Any] | None = _load(place)
        if arrays is None:
            read = []
            for index in range(len(self.ids)):
                self.tell(arm.name, index)
                read.append(self._window(arm, index))
            losses, pairs, counts = (np.stack(values) for values in zip(*read, strict=True))
            arrays = {"losses": losses, "pairs": pairs, "counts": counts}
            if place:
                with write_whole(place) as draft:
                    save_file(arrays, draft)
        self.done += 1
        return Measured(**arrays)

    def tell(self, stage: str, index: int) -> None:
        """Say that a window is read."""
        fraction = (self.done + index / len(self.ids)) / self.expected
        self.context.progress(min(1.0, fraction), f"{stage}, window {index + 1} of {len(self.ids)}")

    def _window(self, arm: Arm, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        layers, length = self.model.num_layers, self.ids.shape[1]
        batch = torch.as_tensor(self.ids[index])[None]
        if arm.settings is None:
            with apply(self.model, METHODS["dense"]()):
                pairs = np.full(layers, causal_pairs(length))
                return token_losses(self.model, batch)[0], pairs, np.zeros((layers, 1), int)
        method = Noted.build(
            arm.router or self.stand_in,
            **arm.settings,
            n_sink=self.n_sink,
            assigned=arm.memberships(index, length, layers),
            dealt=None if arm.chance is None else layer_seeds(arm.chance, index, layers),
            only=arm.layer,
        )
        with apply(self.model, method, kernels=True):
            losses = token_losses(self.model, batch)[0]
        return losses, np.array(method.pairs), np.stack(method.counts)

    def _place(self, arm: Arm) -> Path | None:
        if self.work is None:
            return None
        decides = [self.model.revision, str(self.model.dtype), ids_hash(self.ids), self.n_sink, arm.settings, arm.drawn]
        decides += [arm.router and router_hash(arm.router), arm.chance, arm.layer]
        return self.work / f"{arm.name.replace(', ', '-').replace(' ', '-')}-{text_hash(repr(decides))}.safetensors"


def _load(place: Path | None) -> dict[str, np.ndarray] | None:
    try:
        return load_file(place) if place and place.is_file() else None
    except (SafetensorError, OSError):
        # A file that cannot be read was cut short: the arm is measured anew.
        return None


def dense_of(lm: Model, ids: np.ndarray, context: Context) -> Measured:
    """Dense attention on windows of token ids [n, T]; nothing is stored."""
    return Bench(lm, None, ids, 0, None, context, expected=1).measure(DENSE)


def router_hash(router: FocusRouter) -> str:
    """Twelve digits that name a router by its numbers and settings."""
    numbers = b"".join(value.detach().cpu().numpy().tobytes() for value in router.state_dict().values())
    settings = asdict(router.settings)
    for setting, usual in (("grouped_layers", None), ("heads", 1)):
        # As routers were named before these could be chosen.
        if settings[setting] == usual:
            del settings[setting]
    return text_hash(hashlib.sha256(numbers).hexdigest() + json.dumps(settings))
