"""Does the query matter? A network that predicts how many keys each query needs, with the query and without."""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.errors import BadText
from analysis.metrics.budgets import allocate_budget
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.budgets.cap_rows import Progress, window_losses
from analysis.studies.budgets.cap_sweep import check_caps
from analysis.studies.budgets.query_arms import ARMS, equal_rows, static
from analysis.studies.budgets.query_data import Samples, sample_queries
from analysis.studies.budgets.query_model import BINS, Trained, correlations, predict, table_means, train
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.text.calibration import whole_windows
from analysis.studies.text.held_out import check_range, corpus_hash, ids_hash, places, sample_windows, texts_of, write

MASS, CAPS = 0.9, (32, 64, 128, 256, 512)
NAMES = {True: "with the query", False: "retrained without it"}
RATES = (3e-4, 1e-3, 3e-3)
TOLD = {
    "fit": (0.0, 0.2),
    "train": (0.2, 0.45),
    "ranks": (0.45, 0.5),
    "perplexity": (0.5, 0.99),
}  # parts of the progress


def query_router(
    corpus: str = "",
    model: str = "demo",
    length: int = 1024,
    windows: int = 64,
    steps: int = 600,
    caps: list[int] | None = None,
    beta: float = 1.0,
    seed: int = 0,
    output: str | None = None,
    *,
    context: Context,
) -> Result:
    """CSA's ablation: predict log k* of every query from the query, its norm, its place and its head; then without.

    Documents for training are split into fitting and, every fifth, tuning ones; the held-out ones are tested, `windows`
    windows of `length` tokens on each side at most. Each network is trained for `steps` steps at three rates. As
    budgets, scaled to the same keys as static ones (`beta` times the ranks of the fitting documents, under each cap),
    their perplexity is measured on half as many held-out windows. The result goes to `output` (default
    `<state>/studies/query-router.json`).
    numbers: `sentence`, `parameters`, `correlations` (`arm pooled within_head within_head_and_position error`; also of
    tables that know the head, and the head and position), `rows` (`cap arm perplexity difference low high attended
    reads_causal against_static against_low against_high`), `curves` of the training, `rates`, `samples`, `budgets`,
    `notes`, `path`; tables: `rows`, `correlations`. Errors: BadSetting, BadText.
    """
    check_seed(seed)
    lm = context.model(model)
    caps = check_caps(list(CAPS if caps is None else caps), 0, 0)
    check_range("A window of text", length, 16, lm.max_positions)
    check_range("The number of windows of text", windows, 2, 4096)
    check_range("The number of steps", steps, 1, 1 << 20)
    documents, held_out = texts_of(corpus, context)
    path, _ = places(context, lm, "query-router", output, None)
    fit_documents, tune_documents = _split(documents)
    few = max(2, windows // 4)
    sides = {"fitting": (fit_documents, windows), "tuning": (tune_documents, few), "held-out": (held_out, windows)}
    ids = {
        name: whole_windows(lm, [("", text) for text in texts], length, count * length, f"{name} text")
        for name, (texts, count) in sides.items()
    }
    parts = _samples(context, lm, ids, seed)
    cells = lm.num_layers * lm.num_heads
    trained = {ask: _trained(context, parts, cells, ask, steps, seed) for ask in (True, False)}
    guesses = _guesses(trained, parts)
    found = [{"arm": name, **correlations(guess, parts["held-out"])} for name, guess in guesses.items()]
    ranks = measure_ranks(lm, ids["fitting"][:few], MASS, _part(context, "ranks", 0.0, 1.0)).mean()
    budgets = allocate_budget(ranks, round(beta * float(ranks.sum())))
    measured = ids["held-out"][:: 2 if len(ids["held-out"]) > 2 else 1]
    rows = equal_rows(context, lm, measured, budgets, caps, trained, parts["tuning"], seed, TOLD["perplexity"])
    router = trained[True].router
    command = (
        f"python -m analysis study query-router --corpus DIR --model {lm.name} --windows-count {windows} --length "
        f"{length} --steps {steps} --seed {seed}"
    )
    numbers = {
        "sentence": _sentence(found, rows),
        "parameters": sum(value.numel() for value in router.parameters()),
        "correlations": found,
        "rows": rows,
        "curves": [{"arm": name, **one} for ask, name in NAMES.items() for one in trained[ask].curves],
        "rates": {name: trained[ask].rate for ask, name in NAMES.items()},
        "samples": {name: len(part) for name, part in parts.items()},
        "budgets": budgets.tolist(),
        "caps": caps,
        "length": length,
        "notes": _notes(steps, parts),
        "protocol": protocol(
            "study query-router", lm, ids_hash(measured), int(measured.size), window=length, seed=seed, command=command,
            kernel="top-k of all scores; dense: torch's own", mass=MASS, steps=steps, rates_tried=list(RATES),
            beta=beta, position_bins=BINS, query="as it meets the keys, after rotation",
            corpus=f"{Path(corpus).name}, {len(documents)} documents and {len(held_out)} held out",
            corpus_hash=corpus_hash(documents + held_out),
        ),
    }  # fmt: skip
    write(path, numbers | {"check": sample_check(lm, numbers, context)})
    return Result(numbers | {"path": str(path)}, {"rows": pd.DataFrame(rows), "correlations": pd.DataFrame(found)})


def sample_check(lm: Model, numbers: dict, context: Context) -> dict[str, list[float]]:
    """What needs no corpus, on two windows of the bundled samples: the mean log k* of each layer, and losses under the
    static budgets of the study with its smallest and its largest cap."""
    ids, seed = sample_windows(lm, numbers["length"]), numbers["protocol"]["seed"]
    noted = sample_queries(lm, ids, MASS, seed)
    layers = noted.cell // lm.num_heads
    found = {"mean log k*": [float(noted.log_k[layers == layer].mean()) for layer in range(lm.num_layers)]}
    budgets, told = np.array(numbers["budgets"]), Progress(context, (0.99, 1.0), 4)
    for cap in (min(numbers["caps"]), max(numbers["caps"])):
        method = static(budgets, cap)
        found[f"losses, cap {cap}"] = window_losses(lm, ids, method, told, f"samples, cap {cap}").mean(1).tolist()
    return found


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, name -> (what is stored, what comes out now)."""
    again = sample_check(context.model(stored["protocol"]["model"]), stored, context)
    return {name: (values, again[name]) for name, values in stored["check"].items()}


def _split(documents: list[str]) -> tuple[list[str], list[str]]:
    """Fitting and tuning documents, which share none. Errors: BadText for a single one."""
    if len(documents) < 2:
        raise BadText("The study needs two documents to train on, one to fit and one to tune: give more texts.")
    tune = documents[4::5] or documents[-1:]
    return [text for text in documents if text not in tune], tune


def _part(context: Context, name: str, low: float, high: float):
    begin, end = TOLD[name]

    def told(done: float, stage: str) -> None:
        context.progress(begin + (end - begin) * (low + (high - low) * done), stage)

    return told


def _samples(context: Context, lm: Model, ids: dict[str, np.ndarray], seed: int) -> dict[str, Samples]:
    found = {}
    for at, (name, windows) in enumerate(ids.items()):
        told = _part(context, "fit", at / len(ids), (at + 1) / len(ids))
        found[name] = sample_queries(
            lm, windows, MASS, seed + at, lambda done, told=told, name=name: told(done, f"queries of {name} texts")
        )
    return found


def _trained(context: Context, parts: dict[str, Samples], cells: int, ask: bool, steps: int, seed: int) -> Trained:
    told = _part(context, "train", 0.0 if ask else 0.5, 0.5 if ask else 1.0)
    words = "training with the query" if ask else "training without it"
    return train(parts["fitting"], parts["tuning"], cells, ask, RATES, steps, seed, lambda done: told(done, words))


def _guesses(trained: dict[bool, Trained], parts: dict[str, Samples]) -> dict:
    """Predictions for the held-out queries: of each arm, and of tables that know the head, or head and position."""
    held_out = parts["held-out"]
    found = {
        name: predict(trained[asked].router, held_out, ask=name == "with the query") for name, asked in ARMS.items()
    }
    for name, bins in {"a table of heads": 1, "a table of heads and positions": BINS}.items():
        found[name] = table_means(parts["fitting"], held_out, bins)
    return found


def _sentence(found: list[dict], rows: list[dict]) -> str:
    """What was measured, whichever way it came out."""
    by_arm = {row["arm"]: row for row in found}
    with_it, without = by_arm["with the query"], by_arm["retrained without it"]
    arms = [row for row in rows if row["arm"] == "with the query"]
    better = sum(row["against_high"] is not None and row["against_high"] < 0 for row in arms)
    worse = sum(row["against_low"] is not None and row["against_low"] > 0 for row in arms)
    inner = [_said(row["within_head_and_position"]) for row in (with_it, without)]
    changes = [row["against_static"] for row in arms]
    return (
        f"Pooled over heads, the query lifts the correlation with log k* from {_said(without['pooled'])} to "
        f"{_said(with_it['pooled'])}; inside a head and stretch of positions, where the head explains nothing, from "
        f"{inner[1]} to {inner[0]}. As budgets of equal size its predictions change perplexity by {min(changes):+.1%} "
        f"to {max(changes):+.1%} against static ones: better at {better} of {len(arms)} caps, worse at {worse}, by the "
        "intervals."
    )


def _said(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _notes(steps: int, parts: dict[str, Samples]) -> list[str]:
    fit, test = len(parts["fitting"]), len(parts["held-out"])
    said = [f"Trained on {fit:,} queries and tested on {test:,} of other documents."]
    if steps < 600:
        said.append(f"{steps} steps are few: nothing is won or lost before 600.")
    return said
