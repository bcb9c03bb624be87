"""Eleven findings about the papers that shape what is measured here, each with its panel and its numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from analysis.papers import PAPERS, find
from analysis.papers.ours import Beside, Job, Number, Panel
from analysis.papers.places import (
    CAUSALITY,
    CLOSURE,
    FOCUS,
    QUALITY,
    QUERY,
    RECALL,
    SPEED,
    START,
    TESTS,
    ablation,
    at,
    benchmark,
    pitfalls,
    study,
)

LEAK, TOP = "causality-k8-top1", "top-k4-top1"


@dataclass(frozen=True)
class Finding:
    """One finding: its number, a title, what is the matter, and what stands beside it: job, panel, numbers of ours."""

    number: int
    title: str
    says: str
    beside: Beside


def collisions(cosine: float, bits: int, tables: int, least: int) -> float:
    """Chance that a key is found in at least `least` (1 or 2) of the hash tables (MagicPIG, section 4)."""
    same = (1 - math.acos(cosine) / math.pi) ** bits  # one table's code agrees
    missed = (1 - same) ** tables
    return 1 - missed - (tables * same * (1 - same) ** (tables - 1) if least == 2 else 0.0)


def differing() -> int:
    """How many numbers of the Chinese summary differ from its paper's table 1."""
    printed = {(cell.row, cell.column): cell.value for cell in find("focal_attention", "table 1")}
    return sum(printed[cell.row, cell.column] != cell.value for cell in find("focal_summary_zh"))


def closed(router: str, visited: int, by: str = "mean_of_ratios") -> Callable[[str], Number]:
    """How much of the way from k-means to the MLP a router closes, in the stored study of routers."""
    return lambda says: Number(says, ("closures", {"router": router, "l": visited}, by), "share", study="routing")


def findings() -> list[Finding]:
    """All eleven, in their order."""
    model = Job("model", {"model": ""})
    hard, soft = at(LEAK, reading="hard", membership="literal"), at(LEAK, reading="soft", gate="literal")
    groups, closes = at(TOP, k=2), "of the way from k-means to the MLP"
    arms = {"arm": "with the query"}
    tasks = ("hellaswag", "arc_easy", "piqa", "lambada")
    ten, sixty = (f"{collisions(0.0, 10, 150, least):.1%}" for least in (1, 2))
    one, two = (f"{collisions(0.6, 10, 150, least):.0%}" for least in (1, 2))
    return [
        Finding(
            1, "A registered attention function silently becomes non-causal",
            "Without a mask function of its own it gets no mask at all, and padding and sliding windows are lost as "
            "well. Here the mask is registered with the function, and every model is held against the stock one.",
            Beside(model, START, (
                Number("largest difference of a logit", ("parity", "max_abs_difference"), ""),
                Number("when later tokens change", ("parity", "causal_difference"), ""),
            )),
        ),
        Finding(
            2, "Sinkhorn over a text is a softmax with a bias of the whole text",
            "So the literal rule reads the future through one number for each group, and at a decode step it gives "
            "every group the same. A balance that is frozen on calibration text does neither.",
            Beside(study("causality", router="k8-top1"), CAUSALITY, (
                hard("literal: largest change of a logit when only later tokens change", "moved", ""),
                Number("literal minus causal, hard groups", ("literal_minus_causal", {"reading": "hard"}, "mean"),
                       "nats", study=LEAK),
            )),
        ),
        Finding(
            3, "The printed gate cannot close",
            "It lies between 0.5 and 1, and a score times 0 is not a weight of 0. So training through the gate is not "
            "the hard mask of inference.",
            Beside(study("causality", router="k8-top1"), CAUSALITY, (
                soft("smallest gate of a far pair, as printed", "smallest_gate", ""),
                at(LEAK, reading="soft", gate="log")("smallest gate, as a bias", "smallest_gate", ""),
            )),
        ),
        Finding(
            4, "Two groups per token do not fit two disjoint sets, and K/k is a formula",
            "Each token in k of K groups costs k²/K of dense and counts pairs twice; and what is left of the pairs "
            "bounds the gain. With 3 of 4 groups everything is read.",
            Beside(study("top", router="k4-top1"), ablation(TOP, "Ablations"), (
                groups("K = 4, k = 2: pairs read", "pairs_share", "share"),
                groups("K/k as printed", "formula", "x"),
                groups("what these pairs allow at most", "ideal", "x"),
            )),
        ),
        Finding(
            5, "“Exactly zero degradation” is built in",
            "A prompt that is shorter than the window is read as by dense attention, whatever the groups. So the share "
            "of longer items stands beside every score, and few-shot prompts make the others long.",
            Beside(benchmark(*tasks, methods="dense,focus"), TESTS, tuple(
                Number(f"{says}: {what}", ("pooled", {"method": FOCUS, "prompts": prompts}, name), unit,
                       study="benchmarks")
                for says, prompts in (("the tasks' own prompts", "own"), ("with examples", "long"))
                for what, name, unit in (
                    ("longer than the window of 128", "longer", "share"),
                    ("score against dense", "difference", "points"),
                    ("largest change of an answer's log-probability among the shorter, nats", "within_moved", ""),
                    ("mean change among the longer, nats", "beyond_moved", ""),
                )
            ), "The benchmarks' files."),
        ),
        Finding(
            6, "The logarithms of the sums have pitfalls",
            "A processor's flash kernel says 0 for a row that reads nothing, where minus infinity is right, and what "
            "is taken away as overlap is not what was counted twice. Disjoint parts need neither.",
            Beside(pitfalls(), SPEED, (
                Number("torch's sum for a row that reads nothing", ("empty", "lse"), ""),
                Number("error of a merge that believes it", ("empty", "error"), ""),
                Number("error with minus infinity", ("empty", "error_right"), ""),
                Number("cosine of disjoint parts to the definition", ("merges", "disjoint", "cosine"), ""),
                Number("cosine of subtraction", ("merges", "subtraction", "cosine"), ""),
                Number("its lowest row", ("merges", "subtraction", "lowest"), ""),
            )),
        ),
        Finding(
            7, "MagicPIG needs two collisions, not one",
            f"At cosine 0 a key is found in one of 150 tables by {ten} and in two by {sixty}; at 0.6 by {one} and "
            f"{two}. One table reads several times as many keys, and estimates better for it; but a key that was found "
            "in one and is weighed as if two had been needed counts far too much. Some code takes one, and centres "
            "queries as well: both variants can be chosen.",
            Beside(pitfalls(), QUALITY, tuple(
                Number(f"{rule}: {what}", ("rows", {"rule": rule}, name), unit)
                for rule in ("two tables, weighed for two", "one table, weighed for one", "one table, weighed for two")
                for what, name, unit in (("far pairs read", "found", "share"),
                                         ("estimated sum by the true one", "ratio", "x"))
            )),
        ),
        Finding(
            8, "GWR lacks a control, which does not decide",
            "Always the same buckets, whatever the query asks: a static prior, which the paper leaves out. It finds "
            "less than k-means, so it explains nothing of what GWR linear gains over it. The newest buckets and "
            "an oracle stand beside as well.",
            Beside(study("routing"), RECALL, (
                closed("static_prior", 2, "ratio_of_means")(f"static prior, 2 of 64 buckets, {closes}"),
                closed("gwr_linear", 2, "ratio_of_means")(f"GWR linear, 2 of 64 buckets, {closes}"),
            )),
        ),
        Finding(
            9, "CSA's correlation is pooled",
            "Over heads and positions together, most of it comes from which head and where. Inside a head and a "
            "stretch of positions it is another number.",
            Beside(study("query-router"), QUERY, tuple(
                Number(f"Pearson, {says}", ("correlations", arms, name), "", study="query-router")
                for says, name in (("pooled", "pooled"), ("within a head and stretch", "within_head_and_position"))
            )),
        ),
        Finding(
            10, "The Chinese summary's table is not its paper's",
            f"{differing()} of its {len(find('focal_summary_zh'))} numbers differ from “{PAPERS['focal_attention']}”, "
            "table 1. The paper counts.",
            Beside(
                study("focal-temperatures"),
                Panel("papers-vs-measured", "Papers vs measured, its rows", {"paper": "focal_summary_zh"}),
            ),
        ),
        Finding(
            11, "What GWR linear lacks is the loss, not the non-linearity",
            "GWR linear is fitted with squared errors and the MLP trained with cross-entropy, so the paper compares "
            "two things at once. A linear router with cross-entropy comes near the MLP, nearer than the MLP does with "
            "squared errors.",
            Beside(study("routing"), CLOSURE, (
                *(closed("linear_cross_entropy", few)(f"linear with cross-entropy, {few} of 64 buckets, {closes}")
                  for few in (1, 2, 4, 8)),
                closed("mlp_squared", 2)(f"MLP with squared errors, 2 of 64 buckets, {closes}"),
                closed("gwr_linear", 2)(f"GWR linear, 2 of 64 buckets, {closes}"),
            )),
        ),
    ]  # fmt: skip
