"""Sinkhorn by hand: how large the groups of a text become when temperature and iterations change, nothing retrained."""

from dataclasses import asdict

import torch
from pandas import DataFrame

from analysis.answer import Answer, doc, frame, record
from analysis.groups.dominance import Balance, balance_note, balanced_largest_share, rebalance
from analysis.statistics import attention_inputs
from analysis.studies.context import Context, protocol, read
from analysis.studies.groups.routers import router_for

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


def balance(
    model: str = "demo",
    text: str = "",
    router: str = "k8-top1",
    temperature: float = 0.1,
    iterations: int = 10,
    *,
    context: Context,
) -> Balanced:
    """Balance the router's scores of a text's first 1,024 tokens anew (the literal rule), layer by layer."""
    lm = context.model(model)
    focus_router, _ = router_for(context, lm, router)
    belongs_to = (lm.revision, text, router, float(focus_router.projection.detach().sum()))

    def routing_scores() -> torch.Tensor:
        context.progress(0.1, "routing the text")
        inputs = attention_inputs(lm, [read(context, lm, text, "first").windows[0][:LENGTH]])
        with torch.no_grad():
            return torch.stack([focus_router.scores(layer, hidden).cpu() for layer, hidden in enumerate(inputs)])

    # Scores and curve stay in memory, so that a move of a slider costs one Sinkhorn.
    scores = context.once("scores", belongs_to, routing_scores)  # [L, T, K]
    curve = context.once("balance", (belongs_to, temperature), lambda: _curve(scores, temperature))
    balanced = rebalance(scores, temperature, iterations)
    tokens, mean, worst = scores.shape[1], _mean_share(balanced), max(balanced.share)
    settings = {"router": router, "temperature": temperature, "iterations": iterations}
    return Balanced(
        K=focus_router.K,
        tokens=tokens,
        even=1 / focus_router.K,
        chance=balanced_largest_share(tokens, focus_router.K),
        mean=mean,
        worst=worst,
        sentence=f"At temperature {temperature:g} and {iterations} iterations the largest group holds {mean:.1%} of "
        f"the tokens (mean of layers; worst {worst:.1%}).",
        notes=[balance_note(tokens, focus_router.K)],
        layers=DataFrame({"layer": range(len(balanced.share)), **asdict(balanced)}),
        iterations=frame(CurvePoint, curve),
        protocol=protocol("balance", lm, text, tokens, **settings),
    )


def _curve(scores: torch.Tensor, temperature: float) -> list[CurvePoint]:
    balances = [rebalance(scores, temperature, iterations) for iterations in CURVE]
    return [
        CurvePoint(iterations, _mean_share(balanced), max(balanced.share), max(balanced.mass))
        for iterations, balanced in zip(CURVE, balances, strict=True)
    ]


def _mean_share(balanced: Balance) -> float:
    return sum(balanced.share) / len(balanced.share)
