"""Two pitfalls on a model's own heads: putting sums of exponentials together, and how many hash tables a key needs."""

import math

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from analysis.commandline import commandline
from analysis.commands.probes import Pitfalls
from analysis.errors import BadSetting
from analysis.kernels.collisions import collide, hash_codes
from analysis.kernels.merge import merge, merges
from analysis.kernels.window import flash
from analysis.methods.magicpig import SLACK, MagicPIG
from analysis.metrics.intervals import BLOCKS, interval
from analysis.runs import Result
from analysis.statistics import attention_inputs
from analysis.statistics.states import States, attention_states
from analysis.studies.context import Context, check_seed, protocol, read
from analysis.studies.groups.routers import memberships, named_top, router_facts, router_for

TOKENS = 512  # of the text: pairs of tokens are held
RULES = (  # what is read, and how likely it was taken to be found: tables that must agree in both
    ("two tables, weighed for two", 2, 2),
    ("one table, weighed for one", 1, 1),
    ("one table, weighed for two", 1, 2),
)


@torch.no_grad()
def pitfalls(request: Pitfalls, *, context: Context) -> Result:
    """The first TOKENS tokens of a text: how attention over several sets of keys may be put together, and what MagicPIG
    finds when one hash table is enough and when two must agree.

    numbers: `merges`, per way of `kernels.merge.merges` with the router's groups, the model's queries and keys and
    unit-normal values (`cosine` mean over layers, `lowest` of a row, `error` largest); `empty`, see `empty_row`;
    `rows`, per rule of RULES over the pairs beyond MagicPIG's window: `found` their share, `ratio` the estimated sum of
    exponentials by the true one, `error` its mean distance from 1, each with `_low` and `_high` over heads; `by_chance`
    `one two`, how likely a key at a right angle to the query is found in so many tables; `sentence`.
    table: `rows`. Errors: BadSetting, BadText.
    """
    check_seed(request.seed)
    lm = context.model(request.model)
    if (top := named_top(request.router) or 1) != 1:
        raise BadSetting(f"The router {request.router} puts a token into {top} groups: choose one with 1 group each.")
    reading = read(context, lm, request.text, "first")
    ids = reading.windows[0][:TOKENS]
    focus_router = router_for(context, lm, request.router)[0]
    if len(ids) < 2 * focus_router.window:
        raise BadSetting(f"The text has {len(ids)} tokens and {2 * focus_router.window} are needed: give more text.")
    states = attention_states(lm, ids)
    members = memberships(focus_router, attention_inputs(lm, [ids], make=focus_router.project))[1]  # [L, T, K]
    draw = torch.Generator().manual_seed(request.seed)
    ways, rules = [], {name: [] for name, _, _ in RULES}
    pig = MagicPIG(seed=request.seed)
    for layer, layer_states in states.items():
        context.progress(layer / len(states), f"layer {layer + 1} of {len(states)}")
        ways.append(_merged(layer_states, members[layer].to(layer_states.query.device), focus_router.window, draw))
        for name, values in _found(layer_states, pig, draw).items():
            rules[name] += values
    table = [_rule(name, rules[name]) for name, _, _ in RULES]
    numbers = {
        "merges": {
            name: {
                "cosine": float(np.mean([way[name]["cosine"] for way in ways])),
                "lowest": min(way[name]["lowest"] for way in ways),
                "error": max(way[name]["error"] for way in ways),
            }
            for name in ways[0]
        },
        "empty": empty_row(request.seed),
        "rows": table,
        "by_chance": by_chance(),
        "router": router_facts(request.router, focus_router),
        "notes": [f"The first {len(ids):,} tokens of the text."],
        "protocol": protocol(
            "pitfalls",
            lm,
            request.text,
            len(ids),
            window=len(ids),
            seed=request.seed,
            router=request.router,
            kernel=f"torch's flash kernel of the processor; {pig.tables} tables of {pig.bits} bits",
            command=commandline(
                "pitfalls", {"text": "TEXT", "model": lm.name, "router": request.router, "seed": request.seed}
            ),
        ),
    }
    numbers["sentence"] = sentence(numbers)
    return Result(numbers, {"rows": pd.DataFrame(table)})


def empty_row(seed: int = 0) -> dict:
    """What torch's flash kernel of the processor says of a first token without keys in one of two parts, the other of
    which holds the token itself: its sum `lse` (None where it is minus infinity, as it should be), `error` of a merge
    that believes it, `error_right` of one with minus infinity; whether the sum has a `gradient`, and whether the causal
    mask of fewer queries than keys begins at the first key (`upper_left`)."""
    draw = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        q, k, v = (torch.randn(1, 1, 8, 16, generator=draw).requires_grad_() for _ in range(3))
        bias = torch.zeros(1, 1, 8, 8).masked_fill(torch.arange(8)[:, None] == 0, -math.inf)
        out, lse = flash(q, k, v, 0.0, False, attn_mask=bias)
    q, k, v, out, flash_lse = (x.detach() for x in (q, k, v, out, lse))
    causal_out, whole_lse = flash(q, k, v, 0.0, True)
    right = flash_lse.clone()
    right[..., 0] = -math.inf
    truth = causal_out[..., 0, :]
    errors = {
        name: float((merge(out.nan_to_num(0.0), sums, causal_out, whole_lse)[0][..., 0, :] - truth).abs().max())
        for name, sums in (("error", flash_lse), ("error_right", right))
    }
    fewer = flash(q[:, :, :2], k, v, 0.0, True)[0]
    first = float(flash_lse[..., 0])
    return {
        "lse": first if math.isfinite(first) else None,
        "wrong": math.isfinite(first),
        **errors,
        "gradient": bool(lse.requires_grad),
        "upper_left": bool(torch.allclose(fewer[..., 0, :], v[..., 0, :], atol=1e-5)),
    }


def by_chance() -> dict[str, float]:
    """How likely a key that has nothing to do with a query, at cosine 0, is found where `one` table of MagicPIG is
    enough and where `two` must agree."""
    unlike = torch.zeros((), dtype=torch.float64)
    return {name: float(MagicPIG(variant=kind).chance(unlike)) for name, kind in (("one", "hub"), ("two", "paper"))}


def _merged(states: States, members: Tensor, window: int, draw: torch.Generator) -> dict:
    query, key = states.query[None], states.key[None]
    value = torch.randn(key.shape, generator=draw).to(key)
    return merges(query, key, value, members[None], window, states.scaling)


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
    read_far = {count: (collide(*codes, count)[0] & far)[:, with_far_keys] for count in (1, 2)}
    by_rule = {}
    for name, enough, weighed in RULES:
        collided = read_far[enough]
        ratio = (weight / (chance[weighed] + SLACK) * collided).sum(-1)
        shares = collided.sum((1, 2)) / far.sum()
        by_rule[name] = list(
            zip(shares.tolist(), ratio.mean(1).tolist(), (ratio - 1).abs().mean(1).tolist(), strict=True)
        )
    return by_rule


def _rule(name: str, heads: list[tuple]) -> dict:
    row = {"rule": name, "heads": len(heads)}
    for measure, values in zip(("found", "ratio", "error"), np.array(heads).T, strict=True):
        # Heads of one model on one text.
        over = interval(values, fewest=BLOCKS)
        row |= {measure: over.mean, f"{measure}_low": over.low, f"{measure}_high": over.high}
    return row


def sentence(numbers: dict) -> str:
    """Both pitfalls in two sentences."""
    empty, two_tables, one_table = numbers["empty"], *numbers["rows"][:2]
    text = "torch's flash kernel says minus infinity, as it should, for a row that reads nothing."
    if empty["wrong"]:
        text = f"torch's flash kernel says {empty['lse']:g} for a row that reads nothing, where minus infinity is right"
        text += f": a merge that believes it is wrong by {empty['error']:.2f}."
    cosine = numbers["merges"]["subtraction"]["cosine"]
    text += f" Taking the overlap away gives a cosine of {cosine:.3f} to the definition, disjoint parts "
    text += f"{numbers['merges']['disjoint']['cosine']:.6f}."
    text += f" One hash table finds {one_table['found']:.0%} of the far pairs and two find {two_tables['found']:.0%}"
    chance = {name: f"{value:.1%}" for name, value in numbers["by_chance"].items()}
    return f"{text}; at cosine 0, by chance alone, one finds {chance['one']} and two find {chance['two']}."
