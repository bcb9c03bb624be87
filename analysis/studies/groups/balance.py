"""Sinkhorn by hand: how large the groups of a text become when temperature and iterations change, nothing retrained."""

import torch
from pandas import DataFrame

from ...answer import Answer, doc, frame, record
from ...commands.groups import Balance
from ...groups.dominance import balanced_largest_share, rebalance
from ...statistics import attention_inputs
from ..context import Context, protocol, read
from ..text.text import numbered
from .routers import heads_note, shared_router

CURVE = (0, 1, 2, 3, 5, 10, 20)  # iterations of the curve
# Tokens that are balanced, as in training.
LENGTH = 1024


@record
class LayerBalance:
    """How one layer's groups come out."""

    layer: int
    share: float = doc("share of the tokens whose best group is the largest one")
    mass: float = doc("share of the assignment in the group with the most")
    confidence: float = doc("mean of each token's largest assignment")


@record
class CurvePoint:
    """The largest group after a number of iterations."""

    iterations: int
    mean: float = doc("largest group's share of the tokens, mean over layers")
    worst: float = doc("the worst layer's")
    mass: float = doc("the worst layer's share of the assignment in one group")


@record
class Balanced(Answer):
    """The balance of a text's groups at one temperature and number of iterations."""

    K: int = doc("groups of the router")
    tokens: int = doc("tokens that are balanced")
    even: float = doc("1 / K, the share of every group under perfect balance")
    chance: float = doc("largest share that balanced chance shows on as many tokens")
    mean: float = doc("largest group's share of the tokens, mean over layers")
    worst: float = doc("the worst layer's")
    sentence: str = doc("the result in words")
    notes: list[str] = doc("what a reader must know beside it")
    layers: DataFrame = doc("one row per layer", row=LayerBalance)
    iterations: DataFrame = doc("the same at 0 to 20 iterations", row=CurvePoint)


def balance(request: Balance, *, context: Context) -> Balanced:
    """Balance the router's scores of a text's first 1,024 tokens anew (the literal rule), layer by layer."""
    lm = context.model(request.model)
    router, _ = shared_router(context, lm, request.router)
    belongs_to = (lm.revision, request.text, request.router, float(router.projection.detach().sum()))

    def routing_scores() -> torch.Tensor:
        context.progress(0.1, "routing the text")
        inputs = attention_inputs(lm, [read(context, lm, request.text, "first").windows[0][:LENGTH]])
        with torch.no_grad():
            return torch.stack([router.scores(layer, hidden).cpu() for layer, hidden in enumerate(inputs)])

    def curve() -> list[CurvePoint]:
        points = []
        for iterations in CURVE:
            at = rebalance(scores, request.temperature, iterations)
            points.append(CurvePoint(iterations, at["share"].mean(), at["share"].max(), at["mass"].max()))
        return points

    # Scores and curve stay in memory, so that a move of a slider costs one Sinkhorn.
    scores = context.once("scores", belongs_to, routing_scores)  # [L, T, K]
    points = context.once("balance", (belongs_to, request.temperature), curve)
    layers = rebalance(scores, request.temperature, request.iterations)
    tokens, mean, worst = scores.shape[1], float(layers["share"].mean()), float(layers["share"].max())
    even, chance = 1 / router.K, balanced_largest_share(scores.shape[1], router.K)
    settings = {"router": request.router, "temperature": request.temperature, "iterations": request.iterations}
    return Balanced(
        K=router.K,
        tokens=tokens,
        even=even,
        chance=chance,
        mean=mean,
        worst=worst,
        sentence=f"At temperature {request.temperature:g} and {request.iterations} iterations the largest group holds "
        f"{mean:.1%} of the tokens (mean of layers; worst {worst:.1%}).",
        # Keeps a reader from taking the chance level of a short text for dominance.
        notes=[
            f"In {tokens:,} tokens even perfectly balanced chance puts {chance:.1%} into the largest of {router.K} "
            f"groups, where 1/{router.K} is {even:.1%}.",
            *heads_note(router),
        ],
        layers=numbered(lm, layers.reset_index(names="layer")),
        iterations=frame(CurvePoint, points),
        protocol=protocol("balance", lm, request.text, tokens, **settings),
    )
