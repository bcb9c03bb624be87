"""Does the query matter? A network that predicts how many keys each query needs, with the query and without."""

import math
from functools import partial

import numpy as np

from analysis.errors import BadText
from analysis.methods import METHODS
from analysis.metrics.budgets import allocate_budget
from analysis.metrics.intervals import SEEDS, Interval
from analysis.models import Model
from analysis.studies.budgets.cap_rows import Progress, check_caps, window_losses
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.context import Context
from analysis.studies.stored.comparisons import compared, interval_caveat, scope_of_claim
from analysis.studies.stored.panels import columns
from analysis.studies.stored.runner import Seeds, Setting, Windows, option
from analysis.studies.text.calibration import document_windows
from analysis.studies.text.held_out import corpus_hash, ids_hash, sample_windows
from lab.budgets.query_arms import ARMS, equal_rows, static
from lab.budgets.query_model import BINS, Trained, correlations, predict, sample_queries, table_means, train
from lab.harness.telling import counted

MASS, CAPS = 0.9, (32, 64, 128, 256, 512)
NAMES = {True: "with the query", False: "retrained without it"}
RATES = (3e-4, 1e-3, 3e-3)
TABLES = {"a table of heads": 1, "a table of heads and positions": BINS}


class QueryStudy(Seeds, Windows):
    """CSA's ablation: predict log k* of every query from the query, its norm, its place and its head; then without.

    Documents for training are split into fitting and, every fifth, tuning ones; the held-out ones are tested. Each
    network is trained at three rates. As budgets, scaled to the same keys as static ones (`beta` times the ranks of the
    fitting documents, under each cap), their perplexity is measured on half as many held-out windows; tables that know
    the head, or head and position, stand beside.
    """

    name = "query-router"
    tables = ("rows", "correlations")

    steps: int = option(600, "steps of each training", low=1, high=1 << 20)
    caps: list[int] | None = option(None, f"most keys a query may read (default: {','.join(map(str, CAPS))})")
    beta: float = option(1.0, "total key budget, as a multiple of the sum of the ranks")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_caps(list(self.caps or CAPS))

    def cut(self, run: Setting, texts: list[str], name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Windows of texts [n, T] and their documents [n]."""
        named = [("", text) for text in texts]
        return document_windows(run.lm, named, self.length, count * self.length, f"{name} text")

    def measure(self, run: Setting) -> dict:
        lm, caps = run.lm, check_caps(list(self.caps or CAPS))
        train_texts, held_out = run.texts
        if len(train_texts) < 2:
            raise BadText("The study needs two documents to train on, one to fit and one to tune: give more texts.")
        tune = train_texts[4::5] or train_texts[-1:]
        few, parts = max(2, self.windows // 4), {}
        sides = {
            "fitting": self.cut(run, [text for text in train_texts if text not in tune], "fitting", self.windows),
            "tuning": self.cut(run, tune, "tuning", few),
            "held-out": self.cut(run, held_out, "held-out", self.windows),
        }
        for place, (name, (ids, _)) in enumerate(sides.items()):
            context = run.context.within(0.2 * place / 3, 0.2 / 3)
            report = partial(_report, context, f"queries of {name} texts")
            parts[name] = sample_queries(lm, ids, MASS, self.seed + place, report)
        trained: dict[bool, list[Trained]] = {True: [], False: []}
        turns, cells = [(ask, seed) for ask in trained for seed in self.every_seed], lm.num_layers * lm.num_heads
        for place, (ask, seed) in enumerate(turns):
            context = run.context.within(0.2 + 0.25 * place / len(turns), 0.25 / len(turns))
            report = partial(_report, context, f"training {NAMES[ask]}, seed {seed}")
            data = parts["fitting"], parts["tuning"], cells
            trained[ask].append(train(*data, ask, RATES, self.steps, seed, report))
        scores = []
        for name, with_query in ARMS.items():
            several = []
            for network in trained[with_query]:
                guess = predict(network.router, parts["held-out"], ask=name == "with the query")
                several.append(correlations(guess, parts["held-out"]))
            scores.append({"arm": name} | mean_of(several))
        for name, bins in TABLES.items():
            means = table_means(parts["fitting"], parts["held-out"], bins)
            scores.append({"arm": name} | correlations(means, parts["held-out"]))
        ranks = measure_ranks(lm, sides["fitting"][0][:few], MASS, run.context.within(0.45, 0.05).progress).mean()
        budgets = allocate_budget(ranks, round(self.beta * float(ranks.sum())))
        stride = 2 if len(sides["held-out"][0]) > 2 else 1
        measured, units = (point[::stride] for point in sides["held-out"])
        passes = 1 + len(caps) * (1 + self.seeds * len(ARMS) * 2)
        progress = Progress(run.context.within(0.5, 0.49), passes * len(measured))
        curves = []
        for ask, networks in trained.items():
            for seed, network in zip(self.every_seed, networks, strict=True):
                curves += [{"arm": NAMES[ask], "seed": seed} | point for point in network.curves]
        about = {"kernel": "top-k of all scores; dense: torch's own", "mass": MASS, "rates_tried": list(RATES)}
        about |= {"beta": self.beta, "position_bins": BINS}
        about |= {"query": "as it meets the keys, after rotation", "corpus_hash": corpus_hash(train_texts + held_out)}
        return {
            "parameters": sum(value.numel() for value in trained[True][0].router.parameters()),
            "correlations": scores,
            "rows": equal_rows(lm, measured, units, budgets, caps, trained, parts["tuning"], progress),
            "curves": curves,
            "rates": {name: [network.rate for network in trained[ask]] for ask, name in NAMES.items()},
            "samples": {name: len(part) for name, part in parts.items()},
            "budgets": budgets.tolist(),
            "caps": caps,
            "length": self.length,
            "protocol": run.about(measured, units, **about),
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        lm, ids = run.lm, sample_windows(run.lm, self.length)
        noted = sample_queries(lm, ids, MASS, self.seed)
        layers = noted.cell // lm.num_heads
        values = {"mean log k*": [float(noted.log_k[layers == layer].mean()) for layer in range(lm.num_layers)]}
        budgets, progress = np.array(numbers["budgets"]), Progress(run.context.within(0.99, 0.01), 4)
        for cap in (min(numbers["caps"]), max(numbers["caps"])):
            losses = window_losses(lm, ids, static(budgets, cap), progress, f"samples, cap {cap}")
            values[f"losses, cap {cap}"] = losses.mean(1).tolist()
        return values

    def part(self, run: Setting, numbers: dict) -> dict:
        ids = self.cut(run, run.texts[1], "held-out", self.windows)[0][::2]
        cap, progress, rows = min(numbers["caps"]), Progress(run.context, 2 * len(ids)), []
        arms = {"dense": (None, METHODS["dense"]()), "static": (cap, static(np.array(numbers["budgets"]), cap))}
        for arm, (under, method) in arms.items():
            loss = window_losses(run.lm, ids, method, progress, arm).mean()
            rows.append({"cap": under, "arm": arm, "perplexity": float(np.exp(loss))})
        return {"rows": rows, "protocol": {"text": ids_hash(ids)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        protocol, samples, arms, gains = numbers["protocol"], numbers["samples"], [], []
        for row in numbers["rows"]:
            if row["arm"] == "with the query":
                ends = [row[f"against_{name}"] for name in ("static", "low", "high")]
                logs = [None if value is None else math.log1p(value) for value in ends]
                mean, low, high = logs
                method = "crossed t" if protocol["seeds"] >= SEEDS else "t"
                arms.append(row | compared("against", Interval(mean, low, high, row["units"], method)))
        by_arm = {row["arm"]: row for row in numbers["correlations"]}
        for key, place in (("pooled", "over all heads"), ("within_head_and_position", "inside a head and a stretch")):
            values = [by_arm[NAMES[ask]][key] for ask in (False, True)]
            gains.append(" to ".join("none" if value is None else f"{value:.2f}" for value in values) + f" {place}")
        controls = {"against": "static budgets of as many keys (change of perplexity)"}
        sentence = f"The query lifts the correlation with log k* from {' and from '.join(gains)}; correlations have no "
        sentence += (
            f"interval. {counted(arms, 'caps', controls, 'change')}{scope_of_claim(protocol['seeds'], 'network')}"
        )
        note = f"Trained on {samples['fitting']:,} queries and tested on {samples['held-out']:,} of other documents."
        notes = [note, interval_caveat(protocol)]
        return {"sentence": sentence, "columns": columns("query-router"), "notes": notes}


def _report(context: Context, stage: str, done: float) -> None:
    context.progress(done, stage)


def mean_of(several: list[dict[str, float | None]]) -> dict[str, float | None]:
    """The mean of each number over seeds; None where one of them has none."""
    means: dict[str, float | None] = {}
    for name in several[0]:
        values = [value for part in several if (value := part[name]) is not None]
        means[name] = float(np.mean(values)) if len(values) == len(several) else None
    return means
