"""Budgets that a query router sets, query by query, as a way to read: held against static budgets at equal keys."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from analysis.errors import BadSetting
from analysis.kernels.topk import topk_attention
from analysis.methods import METHODS
from analysis.metrics.budgets import read_pairs, reads
from analysis.metrics.intervals import over_seeds
from analysis.models import Model
from analysis.seam.calls import Attended, Call
from analysis.studies.budgets.cap_rows import Counting, Progress, counted_reads, window_losses
from analysis.studies.stored.comparisons import Row
from lab.budgets.query_model import QueryRouter, Samples, Trained, predict

# Of making two arms read as many keys.
ROUNDS, CLOSE = 4, 0.003
ARMS = {"with the query": True, "the query zeroed at test": True, "retrained without it": False}  # name -> trained so


@dataclass
class Routed(Counting):
    """CSA whose budget is round(factor k*) of every query by itself, k* as a query router predicts it."""

    router: QueryRouter | None = None
    ask: bool = True
    factor: float = 1.0

    @torch.no_grad()
    def attend(self, call: Call) -> Attended:
        assert self.router is not None
        batch, heads, length, size = call.query.shape
        cell = (call.layer * heads + torch.arange(heads)).repeat_interleave(length).repeat(batch)
        place = (torch.arange(length) + call.past).repeat(batch * heads)
        queries = call.query.float().reshape(-1, size).cpu()
        parts = zip(*(x.split(1 << 15) for x in (queries, cell, place)), strict=True)
        wanted = torch.cat([self.router(*part, self.ask) for part in parts])
        counts = keys_of(wanted, self.factor, self.cap).view(batch, heads, length).to(call.query.device)
        out, mask = topk_attention(*call.states, counts, call.scaling, call.past, call.sink_logits)
        self.note(call, mask)
        return Attended(out, "top-k of all scores", "Each query has a budget of its own.")


def keys_of(log_k: torch.Tensor, factor: float, cap: int) -> torch.Tensor:
    """Whole budgets, int32, of predicted log k*."""
    return (log_k.double().exp() * factor).round().clamp(1, cap).int()


def equal_factor(router: QueryRouter, ask: bool, samples: Samples, budgets: np.ndarray, cap: int) -> float:
    """The factor of the predicted budgets that reads as much as static budgets under the same cap, on the samples.
    Errors: BadSetting when no factor between 1/1000 and 1000 does."""
    guess, room, length = predict(router, samples, ask), samples.place + 1, samples.length
    wanted = read_pairs(budgets, cap, length) / (budgets.size * length)  # keys of a query
    low, high = -math.log(1000.0), math.log(1000.0)

    def read(log_factor: float) -> float:
        return float(torch.minimum(keys_of(guess, math.exp(log_factor), cap), room).double().mean())

    if not read(low) <= wanted * 1.001 or not read(high) >= wanted * 0.98:
        raise BadSetting(f"No factor makes the router read {wanted:.1f} keys of a query under a cap of {cap}.")
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if read(middle) < wanted else (low, middle)
    return math.exp(high)


def static(budgets: np.ndarray, cap: int, kind: type[Counting] = Counting, **more: Any) -> Any:
    """Budgets [L, H] under a cap, the same for every query, as a method that counts what it reads."""
    return kind(budgets=tuple(budgets.ravel().tolist()), shape=budgets.shape, cap=cap, **more)


def equal_rows(
    lm: Model,
    ids: np.ndarray,
    documents: np.ndarray,
    budgets: np.ndarray,
    caps: list[int],
    trained: dict[bool, list[Trained]],
    tuning: Samples,
    progress: Progress,
) -> list[Row]:
    """Perplexity of dense attention, of static budgets and of each arm at as many keys, cap by cap; a row each, of all
    seeds of the arm's training. `ids` windows [n, T] of `documents` [n], the units; `tuning` samples scale the arms to
    the keys of the static budgets."""
    length = ids.shape[1]
    dense = window_losses(lm, ids, METHODS["dense"](), progress, "dense")[None]  # [seeds, n, T - 1]
    rows = [_row("dense", None, dense, dense, dense, documents) | reads([[length]], None, length)]
    for cap in caps:
        methods = {"static": [static(budgets, cap)]}
        for name, arm in ARMS.items():
            ask, methods[name] = name == "with the query", []
            for network in trained[arm]:
                factor = equal_factor(network.router, ask, tuning, budgets, cap)
                method = static(budgets, cap, Routed, router=network.router, ask=ask, factor=factor)
                _equalise(lm, ids[:: -(-len(ids) // 4)], budgets, method, progress, f"{name}, cap {cap}")
                methods[name].append(method)
        plain = None
        for name, several in methods.items():
            losses = np.stack([window_losses(lm, ids, method, progress, f"{name}, cap {cap}") for method in several])
            plain = losses if plain is None else plain
            counted = counted_reads(several, lm.num_kv_heads, *ids.shape)
            rows.append(_row(name, cap, losses, dense, plain, documents) | counted)
    return rows


def _equalise(lm: Model, ids: np.ndarray, budgets: np.ndarray, method: Routed, progress: Progress, name: str) -> None:
    """Adjust the factor of an arm until it reads as many keys of some windows [n, T] as the static budgets do."""
    wanted = read_pairs(budgets, method.cap, ids.shape[1]) * len(ids)
    # Queries of other texts, and of sparse passes, ask for more or fewer keys. No loss is looked at.
    for _ in range(ROUNDS):
        method.restart()
        window_losses(lm, ids, method, progress, f"equal keys: {name}")
        if abs(method.read / wanted - 1) < CLOSE:
            break
        method.factor *= wanted / method.read
    method.restart()


def _row(
    name: str, cap: int | None, losses: np.ndarray, dense: np.ndarray, plain: np.ndarray, documents: np.ndarray
) -> Row:
    """Losses [seeds, n, T - 1]; `difference` and `against_static` of perplexity, as shares, with their intervals."""
    row: Row = {"cap": cap, "arm": name, "perplexity": float(np.exp(losses.mean()))}
    row |= {"units": len(np.unique(documents)), "unit": "documents"}
    ends = {("difference", "low", "high"): dense, ("against_static", "against_low", "against_high"): plain}
    for keys, reference in ends.items():
        interval = over_seeds((losses - reference).astype(np.float64).mean(-1), documents)[0]
        for key, value in zip(keys, (interval.mean, interval.low, interval.high), strict=True):
            row[key] = None if value is None else math.expm1(value)
    return row
