"""Indexers inside the model: the loss at equal reads, and whether heads that lack most are those that matter."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from analysis.commands.heads import Names
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.intervals import interval
from analysis.models import Model
from analysis.probes.ablation import Passes
from analysis.studies.context import Context
from analysis.studies.heads.names import CONFIRMED, names
from analysis.studies.quality.equal_budget import nearest
from analysis.studies.quality.following import NOTHING, follow
from analysis.studies.ready.candidates import candidates
from analysis.studies.routing.rows import NAMES
from analysis.studies.stored.comparisons import Row, compared, difference, holm_corrected
from analysis.studies.text.scoring import score_window

Head = tuple[int, int]  # place of the layer, head
# Methods that stand beside inside the model, and how much of the causal pairs all read there.
BESIDE: dict[str, dict[str, Any]] = {"quest": {"dense_layers": 0}, "bucket_routing": {}, "streaming_llm": {}}
READ = 0.25
# What a head may lack.
LACKS = {
    "starved": "how far its recall stays behind its own best",
    "missed": "how much of all its attention is missed",
}
Progress = Callable[[float, str], None]


def settled(lm: Model, method: Method, window: np.ndarray, share: float = READ) -> Method:
    """A method where it reads the `share` of a window's causal pairs, as near as its budget comes."""
    ids, target = torch.as_tensor(window), share * (len(window) + 1) / 2
    low, high, start = method.budget_range(len(window), target)

    def at(value: int) -> Method:
        return replace(method, **{str(method.budgeted): value})

    return at(nearest(lambda value: score_window(lm, at(value), ids)[1].attended, low, high, target, start))


def losses_of(lm: Model, method: Method, windows: Sequence[np.ndarray]) -> tuple[list[float], float]:
    """Mean loss of each window, nats per token, and the share of the causal pairs that is read."""
    scored = [score_window(lm, method, torch.as_tensor(ids)) for ids in windows]
    return [float(losses.mean()) for losses, _ in scored], float(np.mean([reads.reads_causal for _, reads in scored]))


def of_methods(context: Context, lm: Model, windows: Sequence[np.ndarray]) -> dict:
    """Losses of other methods at the same reads, and of dense attention; `snapkv`: that of the last quarter of each
    window, dense and under SnapKV, whose queries then read that share of what they see on average."""
    specs = [{"name": name, "settings": settings} for name, settings in BESIDE.items()]
    methods = {
        candidate.name: settled(lm, candidate.method, windows[0]) for candidate in candidates(context, lm, specs)
    }
    methods["dense"] = METHODS["dense"]()
    prefix = 3 * len(windows[0]) // 4
    following = (len(windows[0]) - prefix) / 2
    snapkv: Any = METHODS["snapkv"]
    share = max(1.0, READ * (prefix + following) - following)
    behind = [
        [float(follow(lm, method, torch.as_tensor(ids), prefix, NOTHING).losses.mean()) for ids in windows]
        for method in (methods["dense"], snapkv(ratio=1 - share / prefix))
    ]
    return {"inside": {name: losses_of(lm, method, windows) for name, method in methods.items()}, "snapkv": behind}


def of_heads(context: Context, lm: Model, windows: Sequence[np.ndarray]) -> dict:
    """`called`: the names of each head, marked where ablation confirms; `without`: the rise of the mean loss of each
    window without it, its output zero, nats per token [windows, heads]."""
    called, without = defaultdict[str, list[str]](list), []
    arguments: dict[str, Any] = {"model": lm.name}
    for row in names(Names(**arguments), context=context).rows:
        called[f"{row['layer']}.{row['head']}"].append(row["name"] + " ✓" * (row["verdict"] == CONFIRMED))
    for number, ids in enumerate(map(torch.as_tensor, windows)):
        context.progress(number / len(windows), f"without each head, window {number + 1}")
        passes = Passes(lm, ids[None])
        cells = [(layer, head) for layer in lm.layer_numbers for head in range(lm.num_heads)]
        without.append([float((passes.without([cell])[0] - passes.losses).mean()) for cell in cells])
    return {"called": called, "without": without}


def related(lacks: dict[str, np.ndarray], rises: np.ndarray) -> list[dict]:
    """Rank correlations over heads of what a head lacks, [documents, heads], with the rise of the loss without it; with
    intervals over documents."""
    rows = []
    for lack, values in lacks.items():
        pairs = zip(values, rises, strict=True)
        by_document = [pd.Series(a).corr(pd.Series(b), method="spearman") for a, b in pairs]
        rows.append({"lacks": lack} | compared("rank", interval(by_document)))
    return holm_corrected(rows, "rank")


def predicted(relations: list[dict]) -> str:
    """Whether what a head lacks predicts what the model loses without it."""
    clauses = []
    for row in relations:
        around = "" if row["rank_low"] is None else f" ({row['rank_low']:.2f} to {row['rank_high']:.2f})"
        clauses.append(f"{LACKS[row['lacks']]} {row['rank']:.2f}{around}")
    return f"Rank correlation, over heads, of the loss without a head with {'; with '.join(clauses)}."


def rows_inside(indexers: dict, beside: dict) -> list[Row]:
    """Each way inside the model: its reads, and its loss over dense attention's with an interval over documents."""
    ways, snapkv = indexers | beside["inside"], np.array(beside["snapkv"])
    (dense, _), units = ways.pop("dense"), np.arange(snapkv.shape[1])
    rows = [
        {"way": name, "reads": reads} | difference("loss", np.array(losses), np.array(dense), units)
        for name, (losses, reads) in ways.items()
    ]
    rows.append({"way": "snapkv", "reads": READ} | difference("loss", snapkv[1], snapkv[0], units))
    return sorted(holm_corrected(rows, "loss"), key=lambda row: row["loss"])


def told_inside(rows: list[dict]) -> str:
    """The losses inside the model in one sentence."""
    clauses = [f"{NAMES.get(row['way'], row['way'])} {row['loss']:.3f} at {row['reads']:.0%}" for row in rows]
    return (
        f"Inside the model, nats per token over dense at these shares of the causal pairs: {', '.join(clauses)}. What "
        "is trained is of the first training, and the texts are few. SnapKV reads a prompt whole, and its loss is that "
        "of the last quarter of each window."
    )
