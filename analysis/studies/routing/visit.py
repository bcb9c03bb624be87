"""The buckets that one query of a text visits, with the attention it really has."""

import pandas as pd
import torch
from torch import Tensor

from analysis.attention import Block
from analysis.errors import BadSetting
from analysis.routers.base import Router
from analysis.runs import Result
from analysis.studies.context import STREAMED, Context, protocol, read
from analysis.studies.routing.cells import RAW, Cell, LayerView, cell_counts, cell_masses
from analysis.studies.routing.live import fitted_for, from_state
from analysis.studies.routing.passes import read_prompt
from analysis.studies.routing.rows import NAMES
from analysis.studies.routing.score import route_scores
from analysis.studies.routing.states import state_near
from analysis.studies.routing.texts import tokens_needed, too_short
from analysis.studies.text.held_out import check_range
from analysis.studies.text.text import token_table


@torch.no_grad()
def route_visit(
    model: str = "demo",
    text: str = "",
    position: int | None = None,
    layer: int = 0,
    head: int = 0,
    router: str = "gwr_linear",
    visited: int = 2,
    min_distance: int = 64,
    sinks: int = 0,
    made: str = "",
    *,
    context: Context,
) -> Result:
    """The buckets that one query of a text visits, with the attention it really has, to paint on the text.

    `position` of the query among the text's tokens (default: the last of the first window), in `layer` and `head`.
    `made` as in `route-at`: it only names what answered.
    table `tokens`: the text's tokens with `bucket` (-1 outside of the query's window or after it), `visited`, `far`
    (whether the key counts) and `attention` (its real weight, the whole row adds up to 1); table `buckets`: `bucket
    score rank visited keys mass`. numbers: `recall` of the far attention, `best` what as many buckets could hold,
    `far_mass` the far share of all attention, `selectivity`, `query`, `notes`, `sentence`. Errors: BadSetting, BadText.
    """
    lm = context.model(model)
    cell = Cell(min_distance, sinks)
    check_range("The minimum distance", min_distance, 1, 1 << 20)
    check_range("The number of sinks", sinks, 0, 64)
    state = state_near(context, lm, min_distance, sinks)
    fitted = from_state(lm, state, cell)
    check_range("The layer", layer, 0, lm.num_layers - 1)
    check_range("The head", head, 0, lm.num_heads - 1)
    buckets = fitted.partitions[RAW].centroids[layer].shape[1]
    check_range("The number of buckets to visit", visited, 1, buckets)
    if router not in fitted.routers[cell][layer]:
        raise BadSetting(f"There is no router {router[:40]!r}: choose one of {', '.join(fitted.routers[cell][layer])}.")
    reading = read(context, lm, text)
    position = reading.tokens.spans[0][1] - 1 if position is None else position
    check_range("The position", position, 0, len(reading.tokens) - 1)
    start = next(a for a, b in reading.tokens.spans if a <= position < b)
    place = position - start
    if place + 1 < tokens_needed(min_distance, sinks):
        raise too_short(f"The text before token {position:,}", place + 1, tokens_needed(min_distance, sinks))
    seen: dict = {}

    def take(at: int, q: Tensor, k: Tensor) -> None:
        if at == layer:
            seen["view"] = LayerView.of(layer, [head], len(q), q, k, [fitted.partitions[RAW]])

    def watch(block: Block, probabilities: Tensor) -> None:
        if block.layer != layer or not int(block.rows[0]) <= place <= int(block.rows[-1]):
            return
        mine, at = seen["view"], place - int(block.rows[0])
        seen["mass"] = cell_masses(mine, block, probabilities[0], [cell])[cell][:, at : at + 1]
        seen["share"] = cell_counts(mine, block, [cell])[cell][0, at]
        seen["row"], seen["visible"] = probabilities[0, head, at], block.visible.expand_as(block.scores)[0, head, at]

    ids = reading.tokens.ids[start : position + 1]  # nothing later is read
    read_prompt(lm, ids, fitted.rotated, take, watch)
    view, mass = seen["view"], seen["mass"]
    one = _one_head(fitted.routers[cell][layer][router], head)
    scores = route_scores(one, view, torch.tensor([place], device=mass.device), cell, mass, fitted)[0, 0]
    order = scores.sort(stable=True, descending=True).indices
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(buckets, device=order.device))
    labels = view.labels[RAW][0][: place + 1].cpu()
    mass, share, rank, scores = mass[0, 0].cpu(), seen["share"].cpu(), rank.cpu(), scores.cpu()
    attention, visible = seen["row"][: place + 1].cpu(), seen["visible"][: place + 1].cpu()
    far = visible & (torch.arange(place + 1) >= sinks) & (place - torch.arange(place + 1) >= min_distance)
    tokens = token_table(reading)
    mine = slice(start, position + 1)
    for name, values, absent in (
        ("bucket", labels, -1), ("visited", rank[labels] < visited, False), ("far", far, False),
        ("attention", attention, 0.0),
    ):  # fmt: skip
        column = pd.Series(absent, index=tokens.index)
        column.iloc[mine] = values.numpy()
        tokens[name] = column
    keys = torch.bincount(labels[far], minlength=buckets)
    table = pd.DataFrame(
        {"bucket": range(buckets), "score": scores.numpy(), "rank": rank.numpy(), "visited": (rank < visited).numpy()}
        | {"keys": keys.numpy(), "mass": mass.numpy()}
    ).sort_values("rank", ignore_index=True)
    recall, best = float(mass[rank < visited].sum()), float(mass.topk(visited).values.sum())
    word = tokens["word"].iloc[position]
    notes = [] if float(mass.sum()) > 0 else ["This query has no attention that far back: nothing can be found."]
    numbers = {
        "recall": recall,
        "best": best,
        "far_mass": float(attention[far].sum()),
        "selectivity": float(share[rank < visited].sum()),
        "query": {"position": position, "word": word, "layer": layer, "head": head, "router": router},
        "sentence": f"{NAMES[router]} sends {word!r} to {visited} of {buckets} buckets and finds {recall:.0%} of what "
        f"this head reads at least {min_distance} tokens back; the best {visited} hold {best:.0%}.",
        "buckets": buckets,
        "start": start,
        "notes": [*reading.notes, *notes, *fitted_for(state, cell)],
        "protocol": protocol("route-visit", lm, text, len(reading.tokens), kernel=STREAMED, min_distance=min_distance),
    }
    return Result(numbers, {"tokens": tokens, "buckets": table})


def _one_head(router: Router, head: int) -> Router:
    """The router of one head out of those of a layer."""
    made = type(router)(router.centroids[head : head + 1], router.seed)
    return made.restore({name: value[head : head + 1] for name, value in router.tensors().items()})
