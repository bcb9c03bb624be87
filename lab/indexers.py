"""Which learned indexer finds most at equal bytes, what does one selection for several heads cost, does training pay?

All indexers are fitted after the fact on the frozen model; bucket routers, the newest keys and the best selections that
a layer, a key-value group or a head could make stand beside them, all at equal keys read. Then they run inside the
model, and heads are taken away.
"""

from functools import partial
from typing import Any

import numpy as np

from analysis.claims import Comparison, Verdict
from analysis.files import read_json
from analysis.indexers.sizes import Sizes
from analysis.metrics.intervals import over_seeds
from analysis.places import CACHE
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.indexers import BOUNDS, SHUFFLED, fit_indexers, score_indexers
from analysis.studies.routing.texts import Prompt
from analysis.studies.stored.comparisons import compared, difference, edges, holm_corrected, interval_caveat
from analysis.studies.stored.panels import chart, column
from analysis.studies.stored.runner import Seeds, Setting, Windows, option
from analysis.studies.text.held_out import sample_windows
from lab.harness import inside
from lab.harness.needles import Needles
from lab.harness.taught import (
    CLOSED,
    FOCUS,
    FREE,
    INDEXERS,
    MAIN,
    NULLS,
    PRIOR,
    QUERIES,
    TRAINED,
    Taught,
    empty_curves,
    titled,
)

# Key of a row -> what an indexer is held against.
OVER = {"over_closed": "the closed form", "over_prior": "the static prior"}
NULL = {"over_shuffled": "shuffled targets"}
CALIBRATED = (
    "All is calibrated on the same {calibrate} documents: DSA for up to {steps:,} steps, the others and what learns "
    f"another document's attention, once, for up to {{others_steps:,}}; learned bucket routers on {QUERIES:,} queries "
    "of each head. MoBA has no targets that could be shuffled. What rotates in an indexer is its own, so a model with "
    "learned positions has all of them."
)


class Indexers(Seeds, Windows):
    """Indexers of 32 bytes a token and layer, fitted on training documents to the attention that is `min_distance` and
    more back; tested on one window of each held-out document, 96 queries of it, at one key in 32 of the far ones.
    `rows`: recall with intervals over documents (and seeds of what is trained), and differences to the closed form, the
    static prior and shuffled targets after Holm. `heads`: each under DSA's selection, the hungriest first; `relations`:
    whether what a head lacks predicts the rise of the loss without it. `inside`: loss, needles and writing where all
    heads read a quarter of the causal pairs. `companion`: what the other bundled model says. `stopped`: after which
    step each training stopped. `closed`: what needs no training, as it comes again."""

    tables = ("rows", "heads", "inside", "relations")

    windows: int = option(12, "held-out windows of text, one of each document", low=2, high=4096)
    calibrate: int = option(48, "documents that are learned from", low=3, high=4096)
    min_distance: int = option(64, "fewest tokens between query and key", low=1)
    steps: int = option(1000, "training steps of DSA at most", low=1, high=1_000_000)
    others_steps: int = option(400, "training steps of the others at most", low=1, high=1_000_000)
    rate: float = option(3e-3, "learning rate of AdamW", low=1e-6, high=1.0)
    inside: int = option(5, "held-out documents on which methods run inside the model", low=1, high=4096)
    needles: int = option(16, "needles of each kind", low=4, high=4096)
    needle_length: int = option(1000, "tokens of a prompt with a needle", low=64)

    def measure(self, run: Setting) -> dict:
        options = [self.length, self.windows, self.calibrate, self.min_distance, run.about(run.windows)]
        trained = [self.steps, self.others_steps, self.rate, *options]
        within_options = [self.inside, self.needles, self.needle_length, *trained]
        taught = self.taught(run)
        parts = [
            run.part("indexers-seed", [seed, *trained], partial(self.of_seed, taught, seed)) for seed in self.every_seed
        ]
        buckets = run.part("indexers-buckets", [*options, QUERIES], taught.of_buckets)
        windows = firsts(run, self.inside)
        heads = run.part(
            "indexers-heads", [*options, self.inside], partial(inside.of_heads, run.context, run.lm, windows)
        )
        needles = Needles.of(run.lm, run.windows, self.needles, self.needle_length, self.seed)
        ways = inside.Inside(taught, windows, needles)
        within = {
            way: run.part(f"indexers-{way}", [*within_options, way], partial(ways.of, way))
            for way in ("dense", *INDEXERS, *inside.BESIDE)
        }
        within[inside.EVICTING] = run.part("indexers-evicting", within_options, ways.evicting)
        own, best, whole = (
            np.array(parts[0]["by_head"][name][: self.inside]) for name in (MAIN, "oracle_head", "whole")
        )
        without = np.array(heads["without"])
        return {
            "rows": self.rows(run, parts, buckets),
            "heads": hungry(parts, heads["called"], without),
            "relations": inside.related({"starved": 1 - own / best, "missed": 1 - whole}, without),
            "inside": inside.rows_inside(within),
            "before": within[inside.EVICTING]["before"],
            "closed": {kind: float(np.mean(parts[0]["documents"][kind])) for kind in FREE},
            "costs": parts[0]["costs"],
            "stopped": {name: [part["stopped"][name] for part in parts] for name in TRAINED},
            "companion": companion(run.lm.name),
            "steps": self.steps,
            "protocol": run.about(run.windows, kernel="softmax over blocks of queries"),
        }

    def taught(self, run: Setting) -> Taught:
        """What is calibrated on the training documents."""
        return Taught(run, self.length, self.calibrate, self.min_distance)

    def of_seed(self, taught: Taught, seed: int) -> dict[str, Any]:
        """Recall of what one seed trains; with the first also of what is not trained, of the nulls and of Focus'
        groups, and its indexers are kept for the method."""
        first = seed == self.seed
        names = (*INDEXERS, *NULLS) if first else TRAINED
        steps = {name: self.steps if name == MAIN else self.others_steps for name in names}
        fitted = taught.indexers(seed, steps, self.rate)
        if first:
            taught.state(fitted)
        layers = range(taught.run.lm.num_layers)
        ends = {name: [fitted.fitted[layer, name].curve[-1].step for layer in layers] for name in TRAINED}
        return taught.of_indexers(fitted, groups=first) | {"stopped": ends}

    def rows(self, run: Setting, parts: list[dict], buckets: dict) -> list[dict]:
        """One row per way to choose, the best first. What was learned is judged beside its nulls as a family of its
        own: that it learned at all is no claim about which is best."""
        units, first = np.arange(len(np.unique(run.documents))), parts[0]["documents"]
        tables = {name: np.array(values) for name, values in (first | buckets).items()}
        tables |= {name: np.array([part["documents"][name] for part in parts]) for name in TRAINED}
        rows = []
        for name, table in tables.items():
            row: dict[str, Any] = {"way": name, "title": titled(name), **edges("recall", over_seeds(table, units)[0])}
            others = {"over_closed": CLOSED if name in TRAINED else "", "over_shuffled": f"{name}{SHUFFLED}"}
            others |= {"over_prior": PRIOR if name in (*INDEXERS, FOCUS) else ""}
            for key, other in others.items():
                if other in tables:
                    row |= difference(key, table, tables[other], units)
            cost = parts[0]["costs"].get(name)
            rows.append(row | ({"bytes": cost[0], "multiplied": cost[1]} if cost else {}))
        shared = tables["oracle_head"] - tables["oracle_layer"]
        (bound,) = [row for row in rows if row["way"] == "oracle_layer"]
        bound |= compared("below_heads", over_seeds(shared, units)[0])
        best, following, *_ = sorted((row for row in rows if row["way"] in INDEXERS), key=lambda row: -row["recall"])
        best |= difference("over_next", tables[best["way"]], tables[following["way"]], units)
        rows = holm_corrected(rows, "over_closed", "over_prior", "below_heads", "over_next")
        return sorted(holm_corrected(rows, "over_shuffled"), key=lambda row: -row["recall"])

    def sample(self, run: Setting, numbers: dict) -> dict:
        windows = [Prompt(number, ids) for number, ids in enumerate(sample_windows(run.lm, min(512, self.length)))][:3]
        cell, curves = Cell(min(self.min_distance, 16), 0), empty_curves(run.lm, len(windows[0].ids))
        sizes = Sizes(min_distance=cell.min_distance)
        score_indexers(
            run.context, run.lm, windows, fit_indexers(run.context, run.lm, windows, FREE, sizes), cell, curves
        )
        return {kind: float(np.nanmean(curves.recall[cell][kind])) for kind in FREE}

    def part(self, run: Setting, numbers: dict) -> dict:
        taught, sizes = self.taught(run), Sizes(min_distance=self.min_distance)
        recalls = taught.of_indexers(fit_indexers(run.context, run.lm, taught.prompts, FREE, sizes))["documents"]
        return {"closed": {kind: float(np.mean(recalls[kind])) for kind in FREE}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = {row["way"]: row for row in numbers["rows"]}
        best = next(row for row in numbers["rows"] if row["way"] in INDEXERS)
        bound, alone = rows["oracle_layer"], rows["oracle_head"]
        starved = sum(row["share"] < 0.5 for row in numbers["heads"])
        worst = ", ".join(row["name"] for row in numbers["heads"][:3])
        following = next(row for row in numbers["rows"] if row["way"] in INDEXERS and row != best)
        ahead = Comparison.of(best, "over_next", unit="points")
        clauses = [
            f"At one key in 32 {spelled(best)} finds most of the far attention, then {spelled(following)}: "
            f"{ahead.evidence}."
        ]
        clauses.append(
            f"One selection for a whole layer holds {span(bound)} at best, one of each head's own {span(alone)}; under "
            f"DSA's {starved} of {len(numbers['heads'])} heads find less than half of their own best, {worst} least."
        )
        for key, words in OVER.items():
            named = beat(numbers, key)
            listed = f": {', '.join(named)}" if named else ""
            clauses.append(f"{len(named)} of {len(TRAINED)} trained ones find more than {words} after Holm{listed}.")
        clauses += [inside.predicted(numbers["relations"]), inside.concluded_inside(numbers["inside"]), agreed(numbers)]
        shown = [column("title", "way to choose"), column("recall", "far attention found", "share")]
        shown += [column("bytes", "bytes a token"), column("multiplied", "multiply-adds a pair")]
        known = set().union(*numbers["rows"])
        shown += [column(key, f"over {words}", "share") for key, words in (OVER | NULL).items() if key in known]
        lines = {"under DSA's selection": MAIN, "best of its layer": "oracle_layer", "best of its own": "oracle_head"}
        x = "title", "way to choose", "share", {"found": "recall"}
        recall = chart("Far attention found, one key in 32", numbers["rows"], *x)
        heads = chart("Heads, the hungriest first", numbers["heads"], "name", "head", "far attention found", lines)
        return {
            "sentence": " ".join(clauses),
            "columns": shown,
            "panels": [recall | {"share": True}, *inside.panels_inside(numbers["inside"]), heads | {"share": True}],
            "notes": [
                interval_caveat(numbers["protocol"]),
                inside.caveat_inside(numbers["inside"], numbers["before"]),
                CALIBRATED.format(**numbers["protocol"]["sizes"]),
            ],
        }


def spelled(row: dict) -> str:
    """Name, recall and size of an indexer."""
    return f"{titled(row['way'])} ({span(row)}, {row['bytes']:.0f} bytes a token)"


def span(row: dict) -> str:
    """A recall with its interval."""
    around = "" if row["recall_low"] is None else f" ({100 * row['recall_low']:.1f} to {100 * row['recall_high']:.1f}%)"
    return f"{row['recall']:.1%}{around}"


def hungry(parts: list[dict], called: dict[str, list[str]], without: np.ndarray) -> list[dict]:
    """Each head's recall under DSA's selection beside what its layer and it alone could find, how much of its attention
    is far, and what it costs; means over seeds and documents."""
    means = {name: np.mean([part["by_head"][name] for part in parts], (0, 1)) for name in (MAIN, *BOUNDS)}
    means |= {"share": means[MAIN] / means["oracle_head"], "far": np.mean(parts[0]["far"], 0)}
    means["without"] = without.mean(0)
    rows = []
    for index, (layer, head) in enumerate(parts[0]["heads"]):
        names = called.get(f"{layer}.{head}", [])
        numbers = {key: round(float(values[index]), 6) for key, values in means.items()}
        about = {"name": " ".join([f"{layer}.{head}", *names[:1]]), "layer": layer, "head": head}
        rows.append(about | {"called": ", ".join(names)} | numbers)
    return sorted(rows, key=lambda row: row["share"])


def firsts(run: Setting, count: int) -> list[np.ndarray]:
    """The first window of each of so many held-out documents."""
    first = np.unique(run.documents, return_index=True)[1][:count]
    return [run.windows[place] for place in first]


def companion(model: str) -> dict[str, Any] | None:
    """What the same study says of the other bundled model, where it is stored."""
    folder, other = (CACHE / "demo-gpt2", "demo-gpt2") if model == "demo" else (CACHE / "demo", "demo")
    stored = next(iter(sorted(folder.glob("**/studies/indexers.json"))), None)
    return {"model": other, "answers": answers(read_json(stored) or {})} if stored else None


def answers(numbers: dict) -> dict[str, str]:
    """What the study says of each of its questions, in words that are the same where the answer is."""
    rows = {row["way"]: row for row in numbers["rows"]}
    best = next(row for row in numbers["rows"] if row["way"] in INDEXERS)
    ahead = Comparison.of(best, "over_next").verdict is Verdict.HIGHER
    costs = Comparison.of(rows["oracle_layer"], "below_heads").verdict is Verdict.HIGHER
    verdicts = {"which finds most": titled(best["way"]) if ahead else "not one alone"}
    verdicts |= {"what sharing costs": "less is found" if costs else "nothing sure"}
    for key, words in OVER.items():
        verdicts[f"training over {words}"] = ", ".join(beat(numbers, key)) or "none"
    return verdicts


def beat(numbers: dict, key: str) -> list[str]:
    """The trained indexers that find more than another way."""
    rows = [row for row in numbers["rows"] if row["way"] in TRAINED]
    return [titled(row["way"]) for row in rows if Comparison.of(row, key).verdict is Verdict.HIGHER]


def agreed(numbers: dict) -> str:
    """Whether the other bundled model says the same."""
    other = numbers.get("companion")
    if other is None:
        return "The other bundled model was not asked."
    ours = answers(numbers)
    same = [name for name, answer in ours.items() if answer == other["answers"][name]]
    apart = [f"{name} ({other['answers'][name]})" for name in ours if name not in same]
    sentence = f"On {other['model']} the same comes out of {', '.join(same) or 'none of it'}"
    return sentence + (f", and otherwise of {', '.join(apart)}." if apart else ".")
