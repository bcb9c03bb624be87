"""Does the query matter? A network that predicts how many keys each query needs, with the query and without."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.claims import Comparison, detectable, signed
from analysis.errors import BadText
from analysis.methods import METHODS
from analysis.metrics.budgets import allocate_budget
from analysis.metrics.intervals import SEEDS, Interval
from analysis.models import Model
from analysis.studies.budgets.cap_rows import Progress, window_losses
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.budgets.sweep import check_caps
from analysis.studies.context import Context
from analysis.studies.stored.comparisons import (
    compared,
    holm_corrected,
    interval_caveat,
    minimum_detectable_effect,
    multiplicity_note,
    scope_of_claim,
)
from analysis.studies.stored.panels import column
from analysis.studies.stored.runner import Seeds, Setting, Study, Windows, option
from analysis.studies.text.calibration import document_windows
from analysis.studies.text.held_out import check_range, corpus_hash, ids_hash, sample_windows
from lab.budgets.query_arms import ARMS, equal_rows, static
from lab.budgets.query_data import Samples, sample_queries
from lab.budgets.query_model import BINS, Trained, correlations, predict, table_means, train

MASS, CAPS = 0.9, (32, 64, 128, 256, 512)
NAMES = {True: "with the query", False: "retrained without it"}
RATES = (3e-4, 1e-3, 3e-3)
TOLD = {
    "fit": (0.0, 0.2),
    "train": (0.2, 0.45),
    "ranks": (0.45, 0.5),
    "perplexity": (0.5, 0.99),
}  # parts of the progress
COLUMNS = [
    *(column("cap", "cap", "keys"), column("arm", "budgets"), column("perplexity", "perplexity")),
    *(column("difference", "against dense", "share"), column("attended", "keys of a query")),
    column("reads_causal", "pairs read", "share"),
    *(column("reads_kv_least", "per key-value head at least", "share"), column("reads_kv_most", "at most", "share")),
    column("against_static", "against static budgets", "share"),
    *(column("against_low", "from", "share"), column("against_high", "to", "share")),
]


@dataclass(frozen=True)
class Sizes(Seeds, Windows):
    """What the study can be asked for."""

    steps: int = option(600, "steps of each training")
    caps: list[int] | None = option(None, f"most keys a query may read (default: {','.join(map(str, CAPS))})")
    beta: float = option(1.0, "total key budget, as a multiple of the sum of the ranks")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The number of steps", self.steps, 1, 1 << 20)
        check_caps(list(self.caps or CAPS), 0, 0)


def measure(at: Setting) -> dict:
    """CSA's ablation: predict log k* of every query from the query, its norm, its place and its head; then without.

    Documents for training are split into fitting and, every fifth, tuning ones; the held-out ones are tested, `windows`
    windows of `length` tokens on each side at most. Each network is trained for `steps` steps at three rates. As
    budgets, scaled to the same keys as static ones (`beta` times the ranks of the fitting documents, under each cap),
    their perplexity is measured on half as many held-out windows.
    `parameters`, `correlations` (`arm pooled within_head within_head_and_position error`; also of tables that know the
    head, and the head and position), `rows` (`cap arm perplexity difference low high`, what is read as
    `counted_reads`, `against_static against_low against_high`), `curves` of the training, `rates`, `samples`,
    `budgets`. Errors: BadSetting, BadText.
    """
    lm, sizes, seed = at.lm, at.sizes, at.sizes.seed
    caps = check_caps(list(sizes.caps or CAPS), 0, 0)
    documents, held_out = at.texts
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
    parts = _samples(at.context, lm, ids, seed)
    cells = lm.num_layers * lm.num_heads
    turns = [(ask, one) for ask in (True, False) for one in sizes.every_seed]
    trained: dict[bool, list[Trained]] = {True: [], False: []}
    for place, (ask, one) in enumerate(turns):
        told = _part(at.context, "train", place / len(turns), (place + 1) / len(turns)).progress
        trained[ask].append(_trained(told, parts, cells, ask, sizes.steps, one))
    guesses = _guesses(trained, parts)
    found = [
        {"arm": name, **mean_of([correlations(guess, parts["held-out"]) for guess in each])}
        for name, each in guesses.items()
    ]
    ranks = measure_ranks(lm, ids["fitting"][:few], MASS, _part(at.context, "ranks").progress).mean()
    budgets = allocate_budget(ranks, round(sizes.beta * float(ranks.sum())))
    every = 2 if len(ids["held-out"]) > 2 else 1
    measured, units = (one[::every] for one in cut["held-out"])
    told = TOLD["perplexity"]
    rows = equal_rows(at.context, lm, measured, units, budgets, caps, trained, parts["tuning"], told)
    return {
        "parameters": sum(value.numel() for value in trained[True][0].router.parameters()),
        "correlations": found,
        "rows": rows,
        "curves": [
            {"arm": name, "seed": seed + place, **one}
            for ask, name in NAMES.items()
            for place, made in enumerate(trained[ask])
            for one in made.curves
        ],
        "rates": {name: [made.rate for made in trained[ask]] for ask, name in NAMES.items()},
        "samples": {name: len(part) for name, part in parts.items()},
        "budgets": budgets.tolist(),
        "caps": caps,
        "length": sizes.length,
        "protocol": at.about(
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


def shown(numbers: dict) -> dict:
    """How the study is told."""
    return {
        "sentence": _sentence(numbers["correlations"], numbers["rows"], numbers["protocol"].get("seeds", 1)),
        "columns": COLUMNS,
        "notes": _notes(numbers["protocol"]["steps"], numbers["samples"]) + [interval_caveat(numbers["protocol"])],
    }


def sample(at: Setting, numbers: dict) -> dict[str, list[float]]:
    """On two windows of the bundled samples: the mean log k* of each layer, and losses under the static budgets of the
    study with its smallest and its largest cap."""
    lm, ids = at.lm, sample_windows(at.lm, numbers["length"])
    noted = sample_queries(lm, ids, MASS, at.sizes.seed)
    layers = noted.cell // lm.num_heads
    found = {"mean log k*": [float(noted.log_k[layers == layer].mean()) for layer in range(lm.num_layers)]}
    budgets, told = np.array(numbers["budgets"]), Progress(at.context, (0.99, 1.0), 4)
    for cap in (min(numbers["caps"]), max(numbers["caps"])):
        losses = window_losses(lm, ids, static(budgets, cap), told, f"samples, cap {cap}")
        found[f"losses, cap {cap}"] = losses.mean(1).tolist()
    return found


def part(at: Setting, numbers: dict) -> dict:
    """Dense attention and the stored static budgets under the smallest cap, on the windows that report."""
    held_out = [("", text) for text in at.texts[1]]
    tokens = at.sizes.windows * at.sizes.length
    ids = document_windows(at.lm, held_out, at.sizes.length, tokens, "held-out text")[0][::2]
    cap, told = min(numbers["caps"]), Progress(at.context, (0.0, 1.0), 2 * len(ids))
    methods = {(None, "dense"): METHODS["dense"](), (cap, "static"): static(np.array(numbers["budgets"]), cap)}
    losses = {key: window_losses(at.lm, ids, method, told, key[1]).mean() for key, method in methods.items()}
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


def _samples(context: Context, lm: Model, ids: dict[str, np.ndarray], seed: int) -> dict[str, Samples]:
    found = {}
    for at, (name, windows) in enumerate(ids.items()):
        told = _part(context, "fit", at / len(ids), (at + 1) / len(ids)).progress
        found[name] = sample_queries(
            lm, windows, MASS, seed + at, lambda done, told=told, name=name: told(done, f"queries of {name} texts")
        )
    return found


def _trained(
    told: Callable[[float, str], None], parts: dict[str, Samples], cells: int, ask: bool, steps: int, seed: int
) -> Trained:
    words = f"training {'with the query' if ask else 'without it'}, seed {seed}"
    return train(parts["fitting"], parts["tuning"], cells, ask, RATES, steps, seed, lambda done: told(done, words))


def _guesses(trained: dict[bool, list[Trained]], parts: dict[str, Samples]) -> dict[str, list]:
    """Predictions for the held-out queries, one of every seed: of each arm, and of tables that know the head, or head
    and position."""
    held_out = parts["held-out"]
    found = {
        name: [predict(made.router, held_out, ask=name == "with the query") for made in trained[asked]]
        for name, asked in ARMS.items()
    }
    for name, bins in {"a table of heads": 1, "a table of heads and positions": BINS}.items():
        found[name] = [table_means(parts["fitting"], held_out, bins)]
    return found


def mean_of(several: list[dict]) -> dict:
    """The mean of each number over seeds; None where one of them has none."""
    together = {name: [one[name] for one in several] for name in several[0]}
    return {name: None if None in values else float(np.mean(values)) for name, values in together.items()}


def _sentence(found: list[dict], rows: list[dict], seeds: int) -> str:
    """What was measured, whichever way it came out."""
    by_arm = {row["arm"]: row for row in found}
    with_it, without = by_arm["with the query"], by_arm["retrained without it"]
    arms = holm_corrected([_against(row, seeds) for row in rows if row["arm"] == "with the query"], "against")
    signs = [Comparison.of(row, "against").direction for row in arms]
    changes = [row["against_static"] for row in arms]
    inner = [_said(row["within_head_and_position"]) for row in (with_it, without)]
    alike = [row for row, sign in zip(arms, signs, strict=True) if not sign]
    where = f"; not significant at a cap of {', '.join(str(row['cap']) for row in alike)}" if alike else ""
    unseen = f", where {detectable(minimum_detectable_effect(alike, 'against'), 'change')}" if alike else ""
    return (
        f"Pooled over heads, the query lifts the correlation with log k* from {_said(without['pooled'])} to "
        f"{_said(with_it['pooled'])}; inside a head and stretch of positions, where the head explains nothing, from "
        f"{inner[1]} to {inner[0]}; correlations have no interval. As budgets of equal size its predictions change "
        f"perplexity by {signed(min(changes), '+.1%')} to {signed(max(changes), '+.1%')} against static ones: lower at "
        f"{signs.count(-1)} of {len(arms)} caps, higher at {signs.count(1)}{where}{unseen}."
        f"{multiplicity_note(arms, 'against')}{scope_of_claim(seeds, 'network')}"
    )


def _against(row: dict, seeds: int) -> dict:
    """A row with `against`, its change of log perplexity against static budgets, as a comparison."""
    ends = [row[f"against_{name}"] for name in ("static", "low", "high")]
    logs = [None if value is None else math.log1p(value) for value in ends]
    method = "crossed t" if seeds >= SEEDS else "t"
    return row | compared("against", Interval(*logs, row.get("units", 0), method))


def _said(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _notes(steps: int, samples: dict[str, int]) -> list[str]:
    fit, test = samples["fitting"], samples["held-out"]
    said = [f"Trained on {fit:,} queries and tested on {test:,} of other documents."]
    if steps < 600:
        said.append(f"{steps} steps are few: nothing is won or lost before 600.")
    return said


query_router = Study("query-router", __doc__, Sizes, measure, shown, sample, tables=("rows", "correlations"), part=part)
