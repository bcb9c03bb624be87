"""Sinkhorn by hand: how large the groups of a text become when temperature and iterations change, nothing retrained."""

import pandas as pd
import torch

from analysis.groups.dominance import balance_note, balanced_largest_share, rebalance
from analysis.runs import Result
from analysis.statistics import attention_inputs
from analysis.studies.context import Context, protocol, read
from analysis.studies.groups.routers import router_for

STEPS = (0, 1, 2, 3, 5, 10, 20)  # iterations of the curve
LENGTH = 1024  # tokens that are balanced, as in training


def balance(
    model: str = "demo",
    text: str = "",
    router: str = "k8-top1",
    temperature: float = 0.1,
    iterations: int = 10,
    *,
    context: Context,
) -> Result:
    """Balance the router's scores of a text's first 1,024 tokens anew (the literal rule), layer by layer.

    The scores are kept between calls, so a slider costs one Sinkhorn. numbers: `K even chance` (what balanced chance
    shows on as many tokens), `mean` and `worst` layer's largest share, `sentence`; tables: `layers` (`layer share
    mass confidence`), `iterations` (`iterations mean worst mass`, the same at 0 to 20 of them, `mass` the worst's).
    """
    lm = context.model(model)
    made, _ = router_for(context, lm, router)
    key = (lm.revision, text, router, float(made.projection.detach().sum()))
    if context.kept.get("scores", (None,))[0] != key:
        context.progress(0.1, "routing the text")
        inputs = attention_inputs(lm, [read(context, lm, text, "first").windows[0][:LENGTH]])
        with torch.no_grad():
            scores = torch.stack([made.scores(layer, hidden).cpu() for layer, hidden in enumerate(inputs)])
        context.kept["scores"] = (key, scores)
    scores = context.kept["scores"][1]  # [L, T, K]
    found = rebalance(scores, temperature, iterations)
    if context.kept.get("balance", (None,))[0] != (key, temperature):
        context.kept["balance"] = ((key, temperature), [_point(scores, temperature, count) for count in STEPS])
    curve = context.kept["balance"][1]
    tokens, mean, worst = scores.shape[1], sum(found.share) / len(found.share), max(found.share)
    layers = {"layer": range(len(found.share)), "share": found.share, "mass": found.mass}
    numbers = {
        "K": made.K,
        "tokens": tokens,
        "even": 1 / made.K,
        "chance": balanced_largest_share(tokens, made.K),
        "mean": mean,
        "worst": worst,
        "sentence": (
            f"At temperature {temperature:g} and {iterations} iterations the largest group holds {mean:.1%} of the "
            f"tokens (mean of layers; worst {worst:.1%})."
        ),
        "notes": [balance_note(tokens, made.K)],
        "protocol": protocol(
            "balance", lm, text, tokens, router=router, temperature=temperature, iterations=iterations
        ),
    }
    return Result(
        numbers, {"layers": pd.DataFrame(layers | {"confidence": found.confidence}), "iterations": pd.DataFrame(curve)}
    )


def _point(scores: torch.Tensor, temperature: float, count: int) -> dict:
    at = rebalance(scores, temperature, count)
    mean = sum(at.share) / len(at.share)
    return {"iterations": count, "mean": mean, "worst": max(at.share), "mass": max(at.mass)}
