"""Indexers inside the model: loss, needles and writing at equal reads, and whether heads that lack most are those that
matter."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch

from analysis.claims import Comparison, Verdict
from analysis.commands.heads import Names
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.indexer import LearnedIndexer
from analysis.metrics.intervals import interval
from analysis.metrics.proportions import share, share_difference
from analysis.models import Model
from analysis.probes.ablation import Passes
from analysis.probes.scoring import KNOWN, UNKNOWN
from analysis.studies.context import Context
from analysis.studies.heads.names import CONFIRMED, names
from analysis.studies.quality.equal_budget import nearest
from analysis.studies.quality.following import NOTHING, follow
from analysis.studies.stored.comparisons import Row, compared, difference, edges, holm_corrected
from analysis.studies.stored.panels import chart
from analysis.studies.text.scoring import score_window
from lab.harness.needles import CHOICES, NEEDLES, NEW, Needles, alike, keeping, written
from lab.harness.taught import Taught, titled

# Methods that stand beside inside the model, and how much of the causal pairs all read there.
BESIDE: dict[str, dict[str, Any]] = {"quest": {"dense_layers": 0}, "bucket_routing": {}, "streaming_llm": {}}
NEWEST, EVICTING, BEFORE = "streaming_llm", "snapkv", "snapkv_before"
READ = 0.25
# What a head may lack.
LACKS = {"starved": "how far its recall stays behind its own best", "missed": "how much of all its attention is missed"}


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


@dataclass
class Inside:
    """Ways to choose inside the model: the loss of held-out windows, needles that are found, and what is written."""

    taught: Taught
    windows: Sequence[np.ndarray]
    needles: Needles

    @cached_property
    def beside(self) -> dict[str, Method]:
        """The methods that are no indexers, where they read as much."""
        lm, methods = self.taught.run.lm, {}
        for name, settings in BESIDE.items():
            state: Any = self.taught.routing if METHODS[name].needs == "buckets" else None
            methods[name] = settled(lm, METHODS[name].build(state, **settings), self.windows[0])
        return methods

    def method(self, way: str) -> Method:
        """Dense attention, an indexer or a method beside them."""
        if way == "dense":
            return METHODS[way]()
        if way in BESIDE:
            return self.beside[way]
        kind = LearnedIndexer.build(self.taught.stored(), kind=way, window=self.taught.min_distance)
        return settled(self.taught.run.lm, kind, self.windows[0])

    def of(self, way: str) -> dict[str, Any]:
        """`losses` of each window and `reads`, `needles` that are found by task, and what is `written`."""
        lm, method = self.taught.run.lm, self.method(way)
        losses, reads = losses_of(lm, method, self.windows)
        answers = {"needles": self.needles.answered(lm, method), "written": written(lm, method, self.windows)}
        return {"losses": losses, "reads": reads} | answers

    def evicting(self) -> dict[str, Any]:
        """SnapKV, which reads a prompt whole: the losses of the last quarter of each window, dense and under it, where
        its queries read that share of what they see on average; needles, with the question in sight and before it, and
        what is written, where it keeps as many keys as the newest ones are."""
        lm, snapkv, prefix = self.taught.run.lm, METHODS[EVICTING], 3 * len(self.windows[0]) // 4
        following = (len(self.windows[0]) - prefix) / 2
        share = keeping(snapkv, max(1.0, READ * (prefix + following) - following), prefix)
        behind = [
            [float(follow(lm, method, torch.as_tensor(ids), prefix, NOTHING).losses.mean()) for ids in self.windows]
            for method in (METHODS["dense"](), share)
        ]
        newest: Any = self.beside[NEWEST]
        keys, (item, _) = newest.window + newest.n_sink, next(iter(self.needles.items.values()))[0]
        answers = {
            turn: self.needles.answered(lm, keeping(snapkv, keys, len(item.ids)), turn) for turn in (KNOWN, UNKNOWN)
        }
        return {
            "losses": behind,
            "needles": answers[KNOWN],
            "before": answers[UNKNOWN],
            "written": written(lm, keeping(snapkv, keys, prefix), self.windows),
        }


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


def rows_inside(parts: dict[str, dict]) -> list[Row]:
    """Each way inside the model: its reads, its loss over dense attention's, how often it finds each kind of needle and
    how much seldomer than dense, and how far it writes as dense does; over documents, and needles."""
    dense, rows = parts["dense"], []
    for way, part in parts.items():
        row: Row = {"way": way, "title": titled(way), "reads": part.get("reads", READ)}
        if way != "dense":
            whole, losses = part["losses"] if way == EVICTING else (dense["losses"], part["losses"])
            row |= difference("loss", np.array(losses), np.array(whole), np.arange(len(whole)))
            row |= edges("written", interval(alike(part["written"], dense["written"])))
        for task, right in part["needles"].items():
            row |= edges(task, share(right))
            if way != "dense":
                row |= compared(f"{task}_more", share_difference(right, dense["needles"][task]))
        rows.append(row)
    more = [f"{task}_more" for task in NEEDLES]
    # SnapKV's loss is of other tokens, so that it has no place among the others.
    return sorted(holm_corrected(rows, "loss", *more), key=lambda row: (row["way"] == EVICTING, row.get("loss", 0.0)))


def panels_inside(rows: list[Row]) -> list[dict]:
    """Needles, loss and writing of every way, dense first and then by the loss; SnapKV last and without a loss."""
    others = [row for row in rows if row["way"] != "dense"]
    x, length = ("title", "way to choose"), f"{NEW} tokens written as dense does, before the first other one"
    tasks = {title: task for task, title in NEEDLES.items()}
    loss = chart("Loss, reading a quarter", others[:-1], *x, "nats per token over dense", {"loss": "loss"})
    written = chart("Written, reading a quarter", others, *x, length, {"written": "written"})
    needles = chart("Needles found, reading a quarter", rows, *x, "right answers", tasks)
    return [needles | {"share": True}, loss, written | {"share": True}]


def caveat_inside(rows: list[Row], before: dict[str, list[float]]) -> str:
    """What the numbers inside the model rest on."""
    reads, last = [row["reads"] for row in rows if row["way"] != "dense"], rows[-1]
    caveat = (
        f"Inside the model every way reads {min(reads):.0%} to {max(reads):.0%} of the causal pairs; what is trained "
        f"is of the first training, and the texts are few. SnapKV reads a prompt whole and loses {last['loss']:.3f} on "
        "the last quarter of each window. "
    )
    late = "; ".join(f"{NEEDLES[task]} {np.mean(right):.0%}" for task, right in before.items())
    return (
        f"{caveat}Needles are {len(next(iter(before.values())))} of each kind, by chance one in {CHOICES} is right. "
        f"There SnapKV keeps as many keys as the newest ones are and sees the question; before it, it finds: {late}."
    )


def concluded_inside(rows: list[Row]) -> str:
    """Which way loses least inside the model, and which find fewer needles than dense attention."""
    best = next(row for row in rows if "loss" in row)
    sentence = f"Reading a quarter inside the model, {best['title']} loses least ({best['loss']:.3f} nats per token)"
    fewer = [row["title"] for row in rows if any(lower(row, f"{task}_more") for task in NEEDLES)]
    return f"{sentence}; fewer needles than dense attention find {', '.join(fewer) or 'none'}."


def lower(row: Row, key: str) -> bool:
    """Whether a comparison of a row is lower after Holm."""
    return key in row and Comparison.of(row, key).verdict is Verdict.LOWER
