"""Two pitfalls on a model's own heads: putting sums of exponentials together, and how many hash tables a key needs."""

import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ...answer import Answer, doc, record
from ...commands import commandline
from ...commands.probes import Pitfalls
from ...errors import BadSetting
from ...kernels.collisions import collide, hash_codes
from ...kernels.dense import flash
from ...kernels.merge import merge, merges
from ...methods.magicpig import SLACK, MagicPIG
from ...metrics.intervals import BLOCKS, interval
from ...statistics import attention_inputs
from ...statistics.states import States, attention_states
from ..context import Context, protocol, read
from ..groups.routers import NAME, heads_note, memberships, router_facts, shared_router

# Of the text: pairs of tokens are held.
TOKENS = 512
# What is read, and how likely it was taken to be found: tables that must agree in both.
RULES = (
    ("two tables, weighed for two", 2, 2),
    ("one table, weighed for one", 1, 1),
    ("one table, weighed for two", 1, 2),
)


@record
class Merged:
    """How attention over several sets of keys comes out when it is put together one way."""

    cosine: float = doc("to attention over all of them, mean over layers")
    lowest: float = doc("the lowest cosine of a row")
    error: float = doc("largest difference of an entry")


@record
class EmptyRow:
    """What torch's flash kernel of the processor says of a first token without keys in one of two parts, the other of
    which holds the token itself."""

    lse: float | None = doc("its log of the sum; None for minus infinity, as it should be")
    wrong: bool
    error: float = doc("of a merge that believes it")
    error_right: float = doc("of a merge with minus infinity")
    gradient: bool = doc("whether the sum has one")
    upper_left: bool = doc("whether the causal mask of fewer queries than keys begins at the first key")


@record
class HashRule:
    """One rule of hash tables over the pairs beyond MagicPIG's window; intervals over heads."""

    rule: str
    heads: int
    found: float | None = doc("share of the pairs that are found")
    found_low: float | None
    found_high: float | None
    ratio: float | None = doc("estimated by true sum of exponentials")
    ratio_low: float | None
    ratio_high: float | None
    error: float | None = doc("mean distance of that from 1")
    error_low: float | None
    error_high: float | None


@record
class PitfallsShown(Answer):
    """Two pitfalls on a model's own heads."""

    merges: dict[str, Merged] = doc("way of `kernels.merge.merges` -> how it comes out")
    empty: EmptyRow = doc("a row that reads nothing")
    rows: list[HashRule] = doc("one per rule of RULES", row=HashRule)
    by_chance: dict[str, float] = doc("one or two tables -> how likely a key at a right angle to the query is found")
    router: dict[str, Any] = doc("the router's name, sizes and how it was made")
    notes: list[str] = doc("how much of the text was read")


@torch.no_grad()
def pitfalls(request: Pitfalls, *, context: Context) -> PitfallsShown:
    """The first TOKENS tokens of a text: how attention over several sets of keys may be put together, with the
    router's groups, the model's queries and keys and unit-normal values; and what MagicPIG finds when one hash table
    is enough and when two must agree. Errors: BadSetting, BadText.
    """
    lm = context.model(request.model)
    if (named := NAME.fullmatch(request.router)) and int(named[2]) != 1:
        raise BadSetting(
            f"The router {request.router} puts a token into {named[2]} groups: choose one with 1 group each."
        )
    reading = read(context, lm, request.text, "first")
    ids = reading.windows[0][:TOKENS]
    focus_router = shared_router(context, lm, request.router)[0]
    if len(ids) < 2 * focus_router.window:
        raise BadSetting(f"The text has {len(ids)} tokens and {2 * focus_router.window} are needed: give more text.")
    states = attention_states(lm, ids)
    members = memberships(focus_router, attention_inputs(lm, [ids], make=focus_router.project))[1]  # [L, T, K]
    draw = torch.Generator().manual_seed(request.seed)
    pig = MagicPIG(seed=request.seed)
    ways: list[dict[str, dict[str, float]]] = []
    heads: dict[str, list[tuple]] = {name: [] for name, _, _ in RULES}
    for layer, of_layer in states.items():
        context.progress(layer / len(states), f"layer {layer + 1} of {len(states)}")
        query, key = of_layer.query[None], of_layer.key[None]
        value = torch.randn(key.shape, generator=draw).to(key)
        in_groups = members[layer].to(key.device)[None]
        ways.append(merges(query, key, value, in_groups, focus_router.window, of_layer.scaling))
        for name, values in _found(of_layer, pig, draw).items():
            heads[name] += values
    rows = []
    for name, of_heads in heads.items():
        numbers: dict[str, float | None] = {}
        for measure, values in zip(("found", "ratio", "error"), np.array(of_heads).T, strict=True):
            # Heads of one model on one text are as many blocks of it.
            over = interval(values, fewest=BLOCKS)
            numbers |= {measure: over.mean, f"{measure}_low": over.low, f"{measure}_high": over.high}
        rows.append(HashRule(rule=name, heads=len(of_heads), **numbers))
    # (layer, way) -> cosine, lowest, error.
    table = pd.DataFrame(ways).stack().apply(pd.Series)
    of_way = table.groupby(level=1, sort=False)
    merged = of_way.agg({"cosine": "mean", "lowest": "min", "error": "max"})
    settings = {"window": len(ids), "seed": request.seed, "router": request.router}
    settings["kernel"] = f"torch's flash kernel of the processor; {pig.tables} tables of {pig.bits} bits"
    settings["command"] = commandline("pitfalls", request.arguments | {"text": "TEXT", "model": lm.name})
    return PitfallsShown(
        merges={way: Merged(**row) for way, row in merged.to_dict("index").items()},
        empty=empty_row(request.seed),
        rows=rows,
        by_chance=by_chance(),
        router=router_facts(request.router, focus_router),
        notes=[f"The first {len(ids):,} tokens of the text.", *heads_note(focus_router)],
        protocol=protocol("pitfalls", lm, request.text, len(ids), **settings),
    )


def empty_row(seed: int = 0) -> EmptyRow:
    """An empty row, made and merged."""
    draw = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        q, k, v = (torch.randn(1, 1, 8, 16, generator=draw).requires_grad_() for _ in range(3))
        bias = torch.zeros(1, 1, 8, 8).masked_fill(torch.arange(8)[:, None] == 0, -math.inf)
        out, lse = flash(q, k, v, 0.0, False, attn_mask=bias)
    q, k, v, out, flash_lse = (x.detach() for x in (q, k, v, out, lse))
    causal_out, causal_lse = flash(q, k, v, 0.0, True)
    right = flash_lse.clone()
    right[..., 0] = -math.inf
    truth = causal_out[..., 0, :]

    def error(sums: Tensor) -> float:
        merged = merge(out.nan_to_num(0.0), sums, causal_out, causal_lse)[0]
        return float((merged[..., 0, :] - truth).abs().max())

    fewer = flash(q[:, :, :2], k, v, 0.0, True)[0]
    first = float(flash_lse[..., 0])
    return EmptyRow(
        lse=first if math.isfinite(first) else None,
        wrong=math.isfinite(first),
        error=error(flash_lse),
        error_right=error(right),
        gradient=bool(lse.requires_grad),
        upper_left=bool(torch.allclose(fewer[..., 0, :], v[..., 0, :], atol=1e-5)),
    )


def by_chance() -> dict[str, float]:
    """How likely a key that has nothing to do with a query, at cosine 0, is found where `one` table of MagicPIG is
    enough and where `two` must agree."""
    unlike = torch.zeros((), dtype=torch.float64)
    return {name: float(MagicPIG(variant=kind).chance(unlike)) for name, kind in (("one", "hub"), ("two", "paper"))}


def _found(states: States, pig: MagicPIG, draw: torch.Generator) -> dict[str, list[tuple]]:
    """Rule -> per head (share of the far pairs that is found, estimated by true sum of exponentials, its distance from
    1), over the queries that have far keys."""
    key = states.key - states.key.mean(1, keepdim=True)
    planes = torch.randn(key.shape[-1], pig.tables, pig.bits, generator=draw).to(key)
    codes = [hash_codes(x, planes)[None] for x in (states.query, key)]
    rows = torch.arange(states.length, device=key.device)
    far = (rows[:, None] - rows >= pig.window) & (rows >= pig.n_sink)
    with_far_keys = far.any(1)
    scores = torch.stack([states.scores(head, 0, states.length) for head in range(len(states.query))])
    weight = scores.masked_fill(~far, -math.inf).softmax(-1)[:, with_far_keys]  # [H, n, T], of the far part alone
    repeat = len(states.query) // len(key)
    unit = [torch.nn.functional.normalize(x, dim=-1) for x in (states.query, key.repeat_interleave(repeat, 0))]
    cosine = (unit[0] @ unit[1].mT)[:, with_far_keys]
    chance = {2: pig.chance(cosine), 1: MagicPIG(variant="hub").chance(cosine)}
    read_far = {count: (collide(codes[0], codes[1], count)[0] & far)[:, with_far_keys] for count in (1, 2)}
    by_rule = {}
    for name, enough, weighed in RULES:
        collided = read_far[enough]
        ratio = (weight / (chance[weighed] + SLACK) * collided).sum(-1)
        shares = collided.sum((1, 2)) / far.sum()
        by_rule[name] = list(
            zip(shares.tolist(), ratio.mean(1).tolist(), (ratio - 1).abs().mean(1).tolist(), strict=True)
        )
    return by_rule
