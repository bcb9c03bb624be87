"""CSA's own table for a model: corpora by contexts, the share of dense reads at which no position changes."""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.corpus import text_hash
from analysis.metrics.budgets import allocate_budget
from analysis.models import Model
from analysis.runs import Result
from analysis.runs.caps import chosen_cap
from analysis.studies.budgets.cap_rows import Progress, window_losses
from analysis.studies.budgets.cap_sweep import CAPS, KERNEL, TOLERANCE, TOLERANCE_BIN, sweep
from analysis.studies.budgets.query_arms import static
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.text.calibration import whole_windows
from analysis.studies.text.domains import domains
from analysis.studies.text.held_out import check_range, corpus_hash, places, read_part, sample_windows, write

MASS = 0.9
BETAS = (1.0, 2.0, 4.0)  # budgets by the sum of the ranks, tried in this order until a cap passes
COLUMNS = ("corpus", "context", "beta", "cap", "passes", "perplexity", "perplexity_dense", "difference", "reads_causal")
COLUMNS += ("reads_full", "worst_bin_change", "worst_bin_difference")


def calibration_table(
    corpus: str = "",
    model: str = "demo",
    length: int = 1024,
    windows: int = 16,
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Calibrate and sweep on every domain of `corpus` (`domains`), in contexts of `length` and twice it.

    `windows` of `length` tokens, or as many tokens, calibrate on the training texts and as many measure on the held-out
    ones. Budgets are beta times the ranks for beta 1, 2 and 4, until a cap of 32 to 512 or of the whole context passes
    (1 % of perplexity, 2 % of the worst position bin); what was done of a cell is kept in `work`. The result goes to
    `output` (default `<state>/studies/calibration.json`).
    numbers: `sentence`, `rows` (per corpus and context the smallest cap that passes, else the largest read of the last
    beta: `corpus context beta cap passes perplexity perplexity_dense difference low high reads_causal reads_full
    attended worst_bin_change worst_bin_difference worst_bin_low worst_bin_high unit tokens`), `sweeps` (all rows of
    all sweeps, with their bins), `ranks` per corpus and context [L][H], `rank_correlations` (between the corpora of a
    context), `path`; table: `rows`. Errors: BadSetting, BadText.
    """
    check_seed(seed)
    lm = context.model(model)
    check_range("A window of text", length, 16, lm.max_positions)
    check_range("The number of windows of text", windows, 1, 4096)
    path, folder = places(context, lm, "calibration", output, work)
    texts = domains(corpus, None, context)
    contexts = [size for size in (length, 2 * length) if size <= lm.max_positions]
    places_of = [(name, size) for name in texts for size in contexts]
    cells = []
    for at, (name, size) in enumerate(places_of):
        span = at / len(places_of), (at + 1) / len(places_of)
        cells.append(_cell(context, lm, name, texts[name], size, windows * length, seed, folder, span))
    rows = [cell["row"] for cell in cells]
    command = (
        f"python -m analysis study calibration --corpus DIR --model {lm.name} --length {length} --windows-count "
        f"{windows} --seed {seed}"
    )
    numbers = {
        "sentence": _sentence(rows),
        "rows": rows,
        "sweeps": [{**_where(cell), **one} for cell in cells for one in cell["sweeps"]],
        "ranks": [{**_where(cell), "ranks": cell["ranks"]} for cell in cells],
        "rank_correlations": _correlations(cells),
        "length": length,
        "protocol": protocol(
            "study calibration", lm, corpus_hash([t for pair in texts.values() for side in pair for t in side]),
            sum(row["tokens"] for row in rows), window=max(contexts), seed=seed, kernel=KERNEL, command=command,
            mass=MASS, tolerance=TOLERANCE, tolerance_bin=TOLERANCE_BIN, betas=list(BETAS), corpora=list(texts),
        ),
    }  # fmt: skip
    write(path, numbers | {"check": sample_check(lm, numbers, context)})
    return Result(numbers | {"path": str(path)}, {"rows": pd.DataFrame([{k: row[k] for k in COLUMNS} for row in rows])})


def sample_check(lm: Model, numbers: dict, context: Context) -> dict[str, list[float]]:
    """On two windows of the bundled samples: the ranks of the heads, and losses under budgets made of them."""
    ids = sample_windows(lm, numbers["length"])
    ranks = measure_ranks(lm, ids, MASS).mean()
    budgets = allocate_budget(ranks, round(float(ranks.sum())))
    losses = window_losses(lm, ids, static(budgets, 64), Progress(context, (0.99, 1.0), 2), "samples")
    return {"ranks": ranks.ravel().tolist(), "losses, cap 64": losses.mean(1).tolist()}


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, name -> (what is stored, what comes out now)."""
    again = sample_check(context.model(stored["protocol"]["model"]), stored, context)
    return {name: (values, again[name]) for name, values in stored["check"].items()}


def _cell(
    context: Context,
    lm: Model,
    name: str,
    texts: tuple[list[str], list[str]],
    size: int,
    tokens: int,
    seed: int,
    folder: Path,
    span: tuple[float, float],
) -> dict:
    """One corpus in one context: `row`, `sweeps`, `ranks`; from `folder` what an earlier run left there."""
    decides = [lm.revision, str(lm.dtype), corpus_hash(texts[0] + texts[1]), size, tokens, seed, BETAS, CAPS]
    decides += [TOLERANCE, TOLERANCE_BIN]
    place = folder / f"calibration-{text_hash(name)[:6]}-{size}-{text_hash(repr(decides))}.json"
    if (kept := read_part(place)) is not None:
        return kept
    sides = [whole_windows(lm, [(name, text) for text in side], size, tokens, f"corpus {name}") for side in texts]
    (begin, end), named = span, _Named(context, f"{name}, {size:,} tokens")
    told = Progress(named, (begin, begin + 0.3 * (end - begin)), len(sides[0]))
    ranks = measure_ranks(lm, sides[0], MASS, lambda done, stage: told(stage)).mean()
    sweeps, chosen = [], None
    for turn, beta in enumerate(BETAS):
        edges = [begin + (end - begin) * (0.3 + 0.7 * (turn + more) / len(BETAS)) for more in (0, 1)]
        budgets = allocate_budget(ranks, round(beta * float(ranks.sum())))
        caps = [cap for cap in CAPS if cap < size] + [size]
        rows = sweep(named, lm, sides[1], budgets, caps, seed=seed, span=tuple(edges))
        sweeps += [{"beta": beta, **row} for row in rows]
        if (cap := chosen_cap(rows)) is not None:
            chosen = next(row for row in sweeps if row["beta"] == beta and row["cap"] == cap)
            break
    row = {key: value for key, value in (chosen or sweeps[-1]).items() if key not in ("bins", "fails")}
    row = {"corpus": name, "context": size, **row, "tokens": int(sides[1].size)}
    found = {"row": row, "sweeps": sweeps, "ranks": ranks.tolist()}
    write(place, found)
    return found


class _Named:
    """Passes progress on with a name before each stage."""

    def __init__(self, context: Context, name: str):
        self._context, self._name = context, name

    def progress(self, fraction: float, stage: str) -> None:
        self._context.progress(min(1.0, fraction), f"{self._name}: {stage}")


def _where(cell: dict) -> dict:
    return {name: cell["row"][name] for name in ("corpus", "context")}


def _correlations(cells: list[dict]) -> list[dict]:
    """Pearson correlation of the logarithms of the ranks of two corpora in the same context."""
    found = []
    for at, one in enumerate(cells):
        for other in cells[at + 1 :]:
            if one["row"]["context"] == other["row"]["context"]:
                logs = np.log([np.ravel(one["ranks"]), np.ravel(other["ranks"])])
                names = {"corpus": one["row"]["corpus"], "other": other["row"]["corpus"]}
                found.append({**names, "context": one["row"]["context"], "pearson_log": float(np.corrcoef(logs)[0, 1])})
    return found


def _sentence(rows: list[dict]) -> str:
    passing = [row["reads_causal"] for row in rows if row["passes"]]
    if not passing:
        return f"No cap passes in {len(rows)} corpora and contexts: this model needs more keys than were tried."
    among = f"{len(passing)} of {len(rows)} corpora and contexts pass"
    return (
        f"{among}, at {min(passing):.1%} to {max(passing):.1%} of the causal reads: perplexity within {TOLERANCE:.0%} "
        f"of dense, and within {TOLERANCE_BIN:.0%} at every stretch of positions."
    )
