"""Does the query matter? A network that predicts how many keys each query needs, with the query and without."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from analysis.errors import BadText
from analysis.methods import METHODS
from analysis.metrics.budgets import allocate_budget
from analysis.metrics.intervals import SEEDS, Interval
from analysis.models import Model
from analysis.studies.budgets.cap_rows import Progress, window_losses
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.budgets.sweep import check_caps
from analysis.studies.context import Context
from analysis.studies.stored.comparisons import compared, interval_caveat, scope_of_claim
from analysis.studies.stored.panels import columns
from analysis.studies.stored.runner import Seeds, Setting, Study, Windows, option
from analysis.studies.text.calibration import document_windows
from analysis.studies.text.held_out import check_range, corpus_hash, ids_hash, sample_windows
from lab.budgets.query_arms import ARMS, equal_rows, static
from lab.budgets.query_data import sample_queries
from lab.budgets.query_model import BINS, Trained, correlations, predict, table_means, train
from lab.harness.telling import counted

MASS, CAPS = 0.9, (32, 64, 128, 256, 512)
NAMES = {True: "with the query", False: "retrained without it"}
RATES = (3e-4, 1e-3, 3e-3)
TOLD = {
    "fit": (0.0, 0.2),
    "train": (0.2, 0.45),
    "ranks": (0.45, 0.5),
    "perplexity": (0.5, 0.99),
}  # parts of the progress


@dataclass(frozen=True)
class Sizes(Seeds, Windows):
    """What the study can be asked for."""

    steps: int = option(600, "steps of each training")
    caps: list[int] | None = option(None, f"most keys a query may read (default: {','.join(map(str, CAPS))})")
    beta: float = option(1.0, "total key budget, as a multiple of the sum of the ranks")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The number of steps", self.steps, 1, 1 << 20)
        check_caps(list(self.caps or CAPS))


def measure(run: Setting) -> dict:
    """CSA's ablation: predict log k* of every query from the query, its norm, its place and its head; then without.

    Documents for training are split into fitting and, every fifth, tuning ones; the held-out ones are tested. Each
    network is trained at three rates. As budgets, scaled to the same keys as static ones (`beta` times the ranks of the
    fitting documents, under each cap), their perplexity is measured on half as many held-out windows; tables that know
    the head, or head and position, stand beside. Errors: BadSetting, BadText.
    """
    lm, sizes, seed = run.lm, run.sizes, run.sizes.seed
    caps = check_caps(list(sizes.caps or CAPS))
    documents, held_out = run.texts
    fit_documents, tune_documents = _split(documents)
    few = max(2, sizes.windows // 4)
    sides = {
        "fitting": (fit_documents, sizes.windows),
        "tuning": (tune_documents, few),
        "held-out": (held_out, sizes.windows),
    }
    cut = {
        name: document_windows(lm, [("", text) for text in texts], sizes.length, count * sizes.length, f"{name} text")
        for name, (texts, count) in sides.items()
    }
    ids = {name: windows for name, (windows, _) in cut.items()}
    parts = {}
    for place, (name, windows) in enumerate(ids.items()):
        report = _part(run.context, "fit", place / len(ids), (place + 1) / len(ids)).progress
        report = partial(report, stage=f"queries of {name} texts")
        parts[name] = sample_queries(lm, windows, MASS, seed + place, report)
    cells = lm.num_layers * lm.num_heads
    turns = [(ask, one) for ask in (True, False) for one in sizes.every_seed]
    trained: dict[bool, list[Trained]] = {True: [], False: []}
    for place, (ask, one) in enumerate(turns):
        stage = f"training {'with the query' if ask else 'without it'}, seed {one}"
        report = _part(run.context, "train", place / len(turns), (place + 1) / len(turns)).progress
        given = parts["fitting"], parts["tuning"], cells, ask, RATES, sizes.steps, one
        trained[ask].append(train(*given, partial(report, stage=stage)))
    scores = []
    for name, with_query in ARMS.items():
        guesses = [
            predict(network.router, parts["held-out"], ask=name == "with the query") for network in trained[with_query]
        ]
        scores.append({"arm": name, **mean_of([correlations(guess, parts["held-out"]) for guess in guesses])})
    for name, bins in {"a table of heads": 1, "a table of heads and positions": BINS}.items():
        means = table_means(parts["fitting"], parts["held-out"], bins)
        scores.append({"arm": name, **correlations(means, parts["held-out"])})
    ranks = measure_ranks(lm, ids["fitting"][:few], MASS, _part(run.context, "ranks").progress).mean()
    budgets = allocate_budget(ranks, round(sizes.beta * float(ranks.sum())))
    every = 2 if len(ids["held-out"]) > 2 else 1
    measured, units = (one[::every] for one in cut["held-out"])
    span = TOLD["perplexity"]
    rows = equal_rows(run.context, lm, measured, units, budgets, caps, trained, parts["tuning"], span)
    return {
        "parameters": sum(value.numel() for value in trained[True][0].router.parameters()),
        "correlations": scores,
        "rows": rows,
        "curves": [
            {"arm": name, "seed": seed + place, **one}
            for ask, name in NAMES.items()
            for place, network in enumerate(trained[ask])
            for one in network.curves
        ],
        "rates": {name: [network.rate for network in trained[ask]] for ask, name in NAMES.items()},
        "samples": {name: len(part) for name, part in parts.items()},
        "budgets": budgets.tolist(),
        "caps": caps,
        "length": sizes.length,
        "protocol": run.about(
            measured,
            units,
            kernel="top-k of all scores; dense: torch's own",
            mass=MASS,
            steps=sizes.steps,
            seeds=sizes.seeds,
            rates_tried=list(RATES),
            beta=sizes.beta,
            position_bins=BINS,
            query="as it meets the keys, after rotation",
            corpus_hash=corpus_hash(documents + held_out),
        ),
    }


def sample(run: Setting, numbers: dict) -> dict[str, list[float]]:
    """On two windows of the bundled samples: the mean log k* of each layer, and losses under the static budgets of the
    study with its smallest and its largest cap."""
    lm, ids = run.lm, sample_windows(run.lm, numbers["length"])
    noted = sample_queries(lm, ids, MASS, run.sizes.seed)
    layers = noted.cell // lm.num_heads
    values = {"mean log k*": [float(noted.log_k[layers == layer].mean()) for layer in range(lm.num_layers)]}
    budgets, progress = np.array(numbers["budgets"]), Progress(run.context, (0.99, 1.0), 4)
    for cap in (min(numbers["caps"]), max(numbers["caps"])):
        losses = window_losses(lm, ids, static(budgets, cap), progress, f"samples, cap {cap}")
        values[f"losses, cap {cap}"] = losses.mean(1).tolist()
    return values


def part(run: Setting, numbers: dict) -> dict:
    """Dense attention and the stored static budgets under the smallest cap, on the windows that report."""
    held_out = [("", text) for text in run.texts[1]]
    tokens = run.sizes.windows * run.sizes.length
    ids = document_windows(run.lm, held_out, run.sizes.length, tokens, "held-out text")[0][::2]
    cap, progress = min(numbers["caps"]), Progress(run.context, (0.0, 1.0), 2 * len(ids))
    methods = {(None, "dense"): METHODS["dense"](), (cap, "static"): static(np.array(numbers["budgets"]), cap)}
    losses = {key: window_losses(run.lm, ids, method, progress, key[1]).mean() for key, method in methods.items()}
    rows = [{"cap": cap, "arm": arm, "perplexity": float(np.exp(loss))} for (cap, arm), loss in losses.items()]
    return {"rows": rows, "protocol": {"text": ids_hash(ids)}}


def _split(documents: list[str]) -> tuple[list[str], list[str]]:
    """Fitting and tuning documents, which share none. Errors: BadText for a single one."""
    if len(documents) < 2:
        raise BadText("The study needs two documents to train on, one to fit and one to tune: give more texts.")
    tune = documents[4::5] or documents[-1:]
    return [text for text in documents if text not in tune], tune


def _part(context: Context, name: str, low: float = 0.0, high: float = 1.0) -> Context:
    """The context of a piece of a part of the work, from `low` to `high` of it."""
    begin, end = TOLD[name]
    return context.within(begin + (end - begin) * low, (end - begin) * (high - low))


def mean_of(several: list[dict]) -> dict:
    """The mean of each number over seeds; None where one of them has none."""
    together = {name: [one[name] for one in several] for name in several[0]}
    return {name: None if None in values else float(np.mean(values)) for name, values in together.items()}


def shown(numbers: dict) -> dict:
    """What the query adds to the correlations, and to perplexity as a budget."""
    protocol, samples = numbers["protocol"], numbers["samples"]
    arms = []
    for row in numbers["rows"]:
        if row["arm"] == "with the query":
            ends = [row[f"against_{name}"] for name in ("static", "low", "high")]
            logs = [None if value is None else math.log1p(value) for value in ends]
            method = "crossed t" if protocol["seeds"] >= SEEDS else "t"
            arms.append(row | compared("against", Interval(*logs, row["units"], method)))
    by_arm = {row["arm"]: row for row in numbers["correlations"]}
    gains = []
    for key, place in (("pooled", "over all heads"), ("within_head_and_position", "inside a head and a stretch")):
        values = [by_arm[arm][key] for arm in ("retrained without it", "with the query")]
        gains.append(" to ".join("none" if value is None else f"{value:.2f}" for value in values) + f" {place}")
    controls = {"against": "static budgets of as many keys (change of perplexity)"}
    sentence = (
        f"The query lifts the correlation with log k* from {' and from '.join(gains)}; correlations have no interval. "
        f"{counted(arms, 'caps', controls, 'change')}{scope_of_claim(protocol['seeds'], 'network')}"
    )
    notes = [f"Trained on {samples['fitting']:,} queries and tested on {samples['held-out']:,} of other documents."]
    if protocol["steps"] < 600:
        notes.append(f"{protocol['steps']} steps are few: nothing is won or lost before 600.")
    return {"sentence": sentence, "columns": columns("query-router"), "notes": [*notes, interval_caveat(protocol)]}


query_router = Study("query-router", __doc__, Sizes, measure, shown, sample, tables=("rows", "correlations"), part=part)
