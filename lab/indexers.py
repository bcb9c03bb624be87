"""Which learned indexer finds most at equal bytes, what does one selection for several heads cost, does training pay?

All indexers are fitted after the fact on the frozen model; bucket routers, the newest keys and the best selections that
a layer, a key-value group or a head could make stand beside them, all at equal keys read. Then they run inside the
model, and heads are taken away.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from analysis.claims import Comparison, Verdict
from analysis.indexers.fit import spread_rows
from analysis.indexers.sizes import Sizes
from analysis.indexers.state import packed
from analysis.methods.indexer import LearnedIndexer
from analysis.metrics.intervals import over_seeds
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.indexers import BOUNDS, SHUFFLED, TESTED, Indexed, fit_indexers, kind_of, score_indexers
from analysis.studies.routing.live import from_state
from analysis.studies.routing.rows import NAMES, at_budget
from analysis.studies.routing.score import Curves, score_routers
from analysis.studies.routing.states import state_near
from analysis.studies.routing.texts import Prompt, prompts_of
from analysis.studies.stored.comparisons import compared, difference, edges, holm_corrected, interval_caveat
from analysis.studies.stored.panels import chart, column
from analysis.studies.stored.runner import Runnable, Seeds, Setting, Windows, option
from analysis.studies.text.held_out import sample_windows
from lab.harness import inside

MAIN, *_ = TRAINED = ("dsa", "qsa", "m3", "seer")
CLOSED, PRIOR = "low_rank", "static_prior"
FREE = (CLOSED, "moba")
INDEXERS = (*TRAINED, *FREE)
# Bucket routers that stand beside; the last needs none.
BUCKETS = ("mlp", "gwr_linear", "kmeans", PRIOR, "random")


@dataclass(frozen=True)
class Indexers(Seeds, Windows):
    """Indexers of 32 bytes a token and layer, fitted on training documents to the attention that is `min_distance` and
    more back; tested on one window of each held-out document, 96 queries of it, at one key in 32 of the far ones.

    `rows`: recall of every indexer, bound and bucket router with its interval over documents (and seeds where it is
    trained), and differences to the closed form and to the static prior after Holm. `heads`: each head under DSA's
    selection, the hungriest first, with its names, and the rise of the loss without it. `relations`: whether what a
    head lacks predicts that. `inside`: the loss where all heads read a quarter of the causal pairs. `stopped`: after
    which step each training stopped. `closed`: what needs no training, as it comes again.
    """

    name = "indexers"
    tables = ("rows", "heads", "inside", "relations")

    windows: int = option(12, "held-out windows of text, one of each document", low=2, high=4096)
    calibrate: int = option(48, "documents that are learned from", low=3, high=4096)
    min_distance: int = option(64, "fewest tokens between query and key", low=1)
    steps: int = option(1000, "training steps of DSA at most", low=1, high=1_000_000)
    others_steps: int = option(400, "training steps of the others at most", low=1, high=1_000_000)
    rate: float = option(3e-3, "learning rate of AdamW", low=1e-6, high=1.0)
    inside: int = option(5, "held-out documents on which methods run inside the model", low=1, high=4096)

    def measure(self, run: Setting) -> dict:
        options = [self.length, self.windows, self.calibrate, self.min_distance, self.inside, run.about(run.windows)]
        trained = [self.steps, self.others_steps, self.rate, *options]
        parts = [
            run.part("indexers-seed", [seed, *trained], partial(self.of_seed, run, seed)) for seed in self.every_seed
        ]
        tested = [TESTED, self.length, self.windows, self.min_distance, run.about(run.windows)]
        buckets = run.part("indexers-buckets", tested, partial(self.of_buckets, run))
        windows = run.context, run.lm, firsts(run, self.inside)
        heads = run.part("indexers-heads", options, partial(inside.of_heads, *windows))
        beside = run.part("indexers-beside", options, partial(inside.of_methods, *windows))
        own, best, whole = (
            np.array(parts[0]["by_head"][name][: self.inside]) for name in (MAIN, "oracle_head", "whole")
        )
        without = np.array(heads["without"])
        return {
            "rows": self.rows(run, parts, buckets),
            "heads": hungry(parts, heads["called"], without),
            "relations": inside.related({"starved": 1 - own / best, "missed": 1 - whole}, without),
            "inside": inside.rows_inside(parts[0]["inside"], beside),
            "closed": {kind: float(np.mean(parts[0]["documents"][kind])) for kind in FREE},
            "costs": parts[0]["costs"],
            "stopped": {name: [part["stopped"][name] for part in parts] for name in TRAINED},
            "steps": self.steps,
            "protocol": run.about(run.windows, kernel="softmax over blocks of queries"),
        }

    def of_seed(self, run: Setting, seed: int) -> dict[str, Any]:
        """Recall of all indexers of one seed; of the first also their losses inside the model."""
        lm, fitted = run.lm, self.fit(run, seed, (MAIN,), self.steps)
        fitted.fitted |= self.fit(run, seed, (*INDEXERS[1:], f"{MAIN}{SHUFFLED}"), self.others_steps).fitted
        state = packed({place: one for place, one in fitted.fitted.items() if place[1] in INDEXERS})
        windows, losses = firsts(run, self.inside), {}
        for kind in INDEXERS if seed == self.seed else ():
            method = inside.settled(lm, LearnedIndexer.build(state, kind=kind, window=self.min_distance), windows[0])
            losses[kind] = inside.losses_of(lm, method, windows)
        ends = {name: [fitted.fitted[layer, name].curve[-1].step for layer in range(lm.num_layers)] for name in TRAINED}
        return self.found(run, fitted) | {"inside": losses, "stopped": ends}

    def learn(self, run: Setting) -> list[Prompt]:
        """What indexers and bucket routers are calibrated on."""
        return prompts_of(run.lm, run.texts[0], self.length, self.calibrate, self.min_distance + 1)

    def fit(self, run: Setting, seed: int, names: tuple[str, ...], steps: int = 1) -> Indexed:
        """Indexers fitted on the training documents."""
        sizes = Sizes(steps=steps, rate=self.rate, min_distance=self.min_distance)
        return fit_indexers(run.context, run.lm, self.learn(run), names, sizes, seed)

    def found(self, run: Setting, fitted: Indexed) -> dict[str, Any]:
        """Recall by indexer: mean over heads of each document, and each head's in every document."""
        lm, cell, curves = run.lm, Cell(self.min_distance, 0), empty_curves(run.lm, self.length)
        score_indexers(run.context, lm, prompts(run), fitted, cell, curves)
        shape = lm.num_heads, lm.num_kv_heads, lm.head_dim
        sizes = {name: one.sizes for (layer, name), one in fitted.fitted.items() if layer == 0}
        by_name, whole = (
            {name: at_budget(values, curves.points, curves.buckets / 32).round(5) for name, values in parts.items()}
            for parts in (curves.recall[cell], fitted.whole)
        )
        by_head = {name: by_name[name].tolist() for name in (MAIN, *BOUNDS) if name in by_name}
        return {
            "documents": {name: np.nanmean(values, 1).round(5).tolist() for name, values in by_name.items()},
            "by_head": by_head | ({"whole": whole[MAIN].tolist()} if MAIN in whole else {}),
            "far": fitted.far.round(5).tolist(),
            "heads": curves.heads,
            "costs": {
                name: [size.cached(kind_of(name), *shape[1:]), size.multiplied(kind_of(name), *shape)]
                for name, size in sizes.items()
            },
        }

    def of_buckets(self, run: Setting) -> dict:
        """Recall of stored bucket routers where they read as many keys, mean over heads of each document."""
        lm, cell = run.lm, Cell(self.min_distance, 0)
        # Indexers read whole keys, which is a little more where few are far: buckets are read at the same mean share.
        far = spread_rows(self.min_distance, self.length, TESTED) + 1 - self.min_distance
        share = float(((far / 32).ceil() / far).mean())
        curves = score_routers(run.context, lm, prompts(run), from_state(lm, state_near(run.context, lm, cell), cell))[
            0
        ]
        found = {}
        for kind in BUCKETS:
            if kind in curves.recall[cell]:
                pairs = zip(curves.selectivity[cell][kind], curves.recall[cell][kind], strict=True)
                by_document = [[np.interp(share, s, r) for s, r in zip(*pair, strict=True)] for pair in pairs]
                found[kind] = np.nanmean(by_document, 1).round(5).tolist()
        return found

    def rows(self, run: Setting, parts: list[dict], buckets: dict) -> list[dict]:
        """One row per way to choose, the best first."""
        units, tables = np.arange(len(np.unique(run.documents))), {}
        for name in parts[0]["documents"]:
            of_seeds = np.array([part["documents"][name] for part in parts])
            tables[name] = of_seeds if kind_of(name) in TRAINED else of_seeds[0]
        tables |= {name: np.array(values) for name, values in buckets.items()}
        rows = []
        for name, table in tables.items():
            row: dict[str, Any] = {"way": name, **edges("recall", over_seeds(table, units)[0])}
            for key, other in (("over_closed", CLOSED), ("over_prior", PRIOR)):
                if other in tables and name in TRAINED:
                    row |= difference(key, table, tables[other], units)
            cost = parts[0]["costs"].get(name)
            rows.append(row | ({"bytes": cost[0], "multiplied": cost[1]} if cost else {}))
        shared = tables["oracle_head"] - tables["oracle_layer"]
        (bound,) = [row for row in rows if row["way"] == "oracle_layer"]
        bound |= compared("below_heads", over_seeds(shared, units)[0])
        best, following, *_ = sorted((row for row in rows if row["way"] in INDEXERS), key=lambda row: -row["recall"])
        best |= difference("over_next", tables[best["way"]], tables[following["way"]], units)
        rows = holm_corrected(rows, "over_closed", "over_prior", "below_heads", "over_next")
        return sorted(rows, key=lambda row: -row["recall"])

    def sample(self, run: Setting, numbers: dict) -> dict:
        windows = [Prompt(number, ids) for number, ids in enumerate(sample_windows(run.lm, min(512, self.length)))][:3]
        cell, curves = Cell(min(self.min_distance, 16), 0), empty_curves(run.lm, len(windows[0].ids))
        sizes = Sizes(min_distance=cell.min_distance)
        score_indexers(
            run.context, run.lm, windows, fit_indexers(run.context, run.lm, windows, FREE, sizes), cell, curves
        )
        return {kind: float(np.nanmean(curves.recall[cell][kind])) for kind in FREE}

    def part(self, run: Setting, numbers: dict) -> dict:
        found = self.found(run, self.fit(run, self.seed, FREE))["documents"]
        return {"closed": {kind: float(np.mean(found[kind])) for kind in FREE}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = {row["way"]: row for row in numbers["rows"]}
        ranked = [row for row in numbers["rows"] if row["way"] in TRAINED]
        best = next(row for row in numbers["rows"] if row["way"] in INDEXERS)
        bound, alone = rows["oracle_layer"], rows["oracle_head"]
        starved = sum(row["share"] < 0.5 for row in numbers["heads"])
        worst = ", ".join(row["name"] for row in numbers["heads"][:3])
        following = next(row for row in numbers["rows"] if row["way"] in INDEXERS and row != best)
        ahead = Comparison.of(best, "over_next", unit="points")
        told = [
            f"At one key in 32 {told_of(best)} finds most of the far attention, then {told_of(following)}: "
            f"{ahead.evidence}."
        ]
        told.append(
            f"One selection for a whole layer holds {span(bound)} at best, one of each head's own {span(alone)}; under "
            f"DSA's {starved} of {len(numbers['heads'])} heads find less than half of their own best, {worst} least."
        )
        for key, words in (("over_closed", "the closed form"), ("over_prior", "the static prior")):
            beat = [NAMES[row["way"]] for row in ranked if Comparison.of(row, key).verdict is Verdict.HIGHER]
            listed = f": {', '.join(beat)}" if beat else ""
            told.append(f"{len(beat)} of {len(ranked)} trained ones find more than {words} after Holm{listed}.")
        told.append(inside.predicted(numbers["relations"]))
        shown = [column("way", "way to choose"), column("recall", "far attention found", "share")]
        shown += [column("bytes", "bytes a token"), column("multiplied", "multiply-adds a pair")]
        shown += [
            column("over_closed", "over the closed form", "share"),
            column("over_prior", "over the prior", "share"),
        ]
        lines = {
            "under DSA's selection": MAIN,
            "best of its layer": "oracle_layer",
            "best of its own": "oracle_head",
        }
        heads = chart("Heads, the hungriest first", numbers["heads"], "name", "head", "far attention found", lines)
        return {
            "sentence": " ".join(told),
            "columns": shown,
            "panels": [heads | {"share": True}],
            "notes": [
                interval_caveat(numbers["protocol"]),
                inside.told_inside(numbers["inside"]),
                "Needles and generation at equal reads were not measured inside the model.",
                "DSA is trained for up to {steps:,} steps, the others for up to {others_steps:,}; the bucket routers "
                "were calibrated on other documents.".format(**numbers["protocol"]["sizes"]),
            ],
        }


def told_of(row: dict) -> str:
    """Name, recall and size of an indexer."""
    return f"{NAMES[row['way']]} ({span(row)}, {row['bytes']:.0f} bytes a token)"


def span(row: dict) -> str:
    """A recall with its interval."""
    around = "" if row["recall_low"] is None else f" ({100 * row['recall_low']:.1f} to {100 * row['recall_high']:.1f}%)"
    return f"{row['recall']:.1%}{around}"


def hungry(parts: list[dict], called: dict[str, list[str]], without: np.ndarray) -> list[dict]:
    """Each head's recall under DSA's selection beside what its layer and it alone could find, how much of its attention
    is far, and what it costs; means over seeds and documents."""
    found = {name: np.mean([part["by_head"][name] for part in parts], (0, 1)) for name in (MAIN, *BOUNDS)}
    found |= {"share": found[MAIN] / found["oracle_head"], "far": np.mean(parts[0]["far"], 0)}
    found["without"] = without.mean(0)
    rows = []
    for index, (layer, head) in enumerate(parts[0]["heads"]):
        names = called.get(f"{layer}.{head}", [])
        numbers = {key: round(float(values[index]), 6) for key, values in found.items()}
        about = {"name": " ".join([f"{layer}.{head}", *names[:1]]), "layer": layer, "head": head}
        rows.append(about | {"called": ", ".join(names)} | numbers)
    return sorted(rows, key=lambda row: row["share"])


def firsts(run: Setting, count: int) -> list[np.ndarray]:
    """The first window of each of so many held-out documents."""
    first = np.unique(run.documents, return_index=True)[1][:count]
    return [run.windows[place] for place in first]


def prompts(run: Setting) -> list[Prompt]:
    """The held-out windows by document."""
    number = {document: place for place, document in enumerate(np.unique(run.documents))}
    return [Prompt(number[document], ids) for document, ids in zip(run.documents, run.windows, strict=True)]


def empty_curves(lm: Any, length: int) -> Curves:
    """Curves of all heads without any router, at a few budgets."""
    buckets = max(32, length // 16)
    heads = [(layer, head) for layer in lm.layer_numbers for head in range(lm.num_heads)]
    points = [1, buckets // 32, buckets // 16, buckets // 8, buckets]
    return Curves(heads, sorted(set(points)), buckets, defaultdict(dict), defaultdict(dict), {})


indexers = Runnable(Indexers)
