"""Sinkhorn by hand: how large the groups of a text become when temperature and iterations change, nothing retrained."""

from dataclasses import asdict

import torch
from pandas import DataFrame

from ...answer import Answer, doc, frame, record
from ...commands.groups import Balance
from ...groups.dominance import balance_note, balanced_largest_share, rebalance
from ...statistics import attention_inputs
from ..context import Context, protocol, read
from .routers import router_for

CURVE = (0, 1, 2, 3, 5, 10, 20)  # iterations of the curve
LENGTH = 1024  # tokens that are balanced, as in training


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
    focus_router, _ = router_for(context, lm, request.router)
    belongs_to = (lm.revision, request.text, request.router, float(focus_router.projection.detach().sum()))

    def routing_scores() -> torch.Tensor:
        context.progress(0.1, "routing the text")
        inputs = attention_inputs(lm, [read(context, lm, request.text, "first").windows[0][:LENGTH]])
        with torch.no_grad():
            return torch.stack([focus_router.scores(layer, hidden).cpu() for layer, hidden in enumerate(inputs)])

    # Scores and curve stay in memory, so that a move of a slider costs one Sinkhorn.
    scores = context.once("scores", belongs_to, routing_scores)  # [L, T, K]
    curve = context.once("balance", (belongs_to, request.temperature), lambda: _curve(scores, request.temperature))
    balanced = rebalance(scores, request.temperature, request.iterations)
    tokens, mean, worst = scores.shape[1], balanced.mean_share, max(balanced.share)
    settings = {"router": request.router, "temperature": request.temperature, "iterations": request.iterations}
    return Balanced(
        K=focus_router.K,
        tokens=tokens,
        even=1 / focus_router.K,
        chance=balanced_largest_share(tokens, focus_router.K),
        mean=mean,
        worst=worst,
        sentence=f"At temperature {request.temperature:g} and {request.iterations} iterations the largest group holds "
        f"{mean:.1%} of the tokens (mean of layers; worst {worst:.1%}).",
        notes=[balance_note(tokens, focus_router.K)],
        layers=DataFrame({"layer": range(len(balanced.share)), **asdict(balanced)}),
        iterations=frame(CurvePoint, curve),
        protocol=protocol("balance", lm, request.text, tokens, **settings),
    )


def _curve(scores: torch.Tensor, temperature: float) -> list[CurvePoint]:
    balances = [rebalance(scores, temperature, iterations) for iterations in CURVE]
    return [
        CurvePoint(iterations, balanced.mean_share, max(balanced.share), max(balanced.mass))
        for iterations, balanced in zip(CURVE, balances, strict=True)
    ]
