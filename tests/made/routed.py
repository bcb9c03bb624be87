"""What bucket routing is tried on: made-up buckets for the tiny models, a tiny model with a corpus to fit them on."""

from pathlib import Path

import torch

from analysis.corpus import sample_texts
from analysis.routers import ROUTERS
from analysis.routers.moments import Moments
from analysis.routers.routing_state import RoutingSettings, RoutingState, stack
from analysis.studies import STUDIES
from analysis.studies.context import Context
from tests.made.evaluating import tiny_models
from tests.made.models import watched
from tests.made.tiny import LAYERS

HEADS, DIM = 4, 8
DISTANCE, BUCKETS = 8, 6
SMALL = {"min_distance": DISTANCE, "buckets": BUCKETS, "prompts": 3}


def made_state(buckets: int = 6, layers: int = LAYERS, seed: int = 0, **about) -> RoutingState:
    """Random unit centroids [L, 4, C, 8] and every router that scores queries, fitted on random pairs."""
    draw = torch.Generator().manual_seed(seed)
    centroids, routers = [], []
    for _ in range(layers):
        means = torch.nn.functional.normalize(torch.randn(HEADS, buckets, DIM, generator=draw), dim=-1)
        queries = torch.randn(HEADS, 64, DIM, generator=draw)
        mass = torch.softmax(4 * queries @ means.mT, -1)
        moments = Moments().add(queries).mean(1e-4), Moments().add(means).mean(1e-4)
        by_kind = {kind: ROUTERS[kind](means, seed) for kind in ("random", "recency", "kmeans", "oracle")}
        by_kind |= {kind: ROUTERS[kind](means).fit(*moments) for kind in ("whitening", "gwr_geometric")}
        learned = ("static_prior", "gwr_linear", "gwr_linear_intercept")
        by_kind |= {kind: ROUTERS[kind](means).partial_fit(queries, mass) for kind in learned}
        by_kind["mlp"] = ROUTERS["mlp"](means).fit(queries, mass, epochs=1)
        centroids.append(means)
        routers.append(by_kind)
    settings = RoutingSettings(buckets, 4, 1, 48, seed, [True] * layers)
    return stack(routers, centroids, settings, **about)


def routed_home(home: Path) -> Path:
    """Makes in `home` the model `tiny` and the folder `corpus` with four training and four held-out documents."""
    tiny_models(home)
    text = "\n".join(text for _, text in sample_texts().values())
    for number in range(8):
        side = home / "corpus" / ("train" if number < 4 else "valid")
        side.mkdir(parents=True, exist_ok=True)
        (side / f"{number}.txt").write_text(text[number * 1800 : (number + 1) * 1800])
    return home


def routing_context(home: Path) -> Context:
    """A watched context of these models."""
    return watched(home / "state")


def everything(home: Path, context: Context):
    """The result of `route` with the grid and routers' own buckets, stored."""
    settings = {"corpus": str(home / "corpus"), "model": str(home / "tiny"), "own": True, "store": True, **SMALL}
    return STUDIES["route"](**settings, grid=True, context=context)
